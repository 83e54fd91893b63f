import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import { endpointLimit } from '../../src/service/admit-call.ts';
import { type BotServiceOptions, startBotService } from '../../src/service/bot-service.ts';
import { DEMO } from '../../src/service/settings/settings.ts';
import { call } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import {
  codeOf,
  type DemoService,
  demoEvents,
  errorOf,
  played,
  startDemoService,
  textsOf,
  typesOf,
} from '../harness/service/demo-service.ts';
import { chatChunk, modelSettings } from '../harness/service/model-fixtures.ts';
import { dataStream, type ModelServer, startModelServer } from '../harness/service/model-server.ts';
import { botWith, SERVICE_SECRET, setKeyEnabled, settingsFile } from '../harness/service/settings-file.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
const TYPE = { 'Content-Type': 'application/json' };
const KEY = { ...TYPE, 'X-API-KEY': 'key-1' };
const HELLO = { customChannelId: 'c1', customMessageId: 'm1', text: 'hello', action: 'NONE' };

let service: DemoService;
let models: ModelServer | undefined;
const start = async (options: BotServiceOptions = {}) => {
  service = await startDemoService(options);
  return service.settings;
};
afterEach(async () => {
  jest.useRealTimers();
  jest.restoreAllMocks();
  await service.close();
  await models?.close();
  models = undefined;
});

const ask = (path: string, body = '{}', headers: Record<string, string> = KEY, method = 'POST') =>
  call(service.port, path, { method, headers, body });
/** The status of an answer, with the code of its refusal. */
const outcome = async (...asked: Parameters<typeof ask>) => {
  const { status, headers, body } = await ask(...asked);
  if (status === 200) return status;
  expect(headers['content-type']).toBe('application/json');
  const { error } = JSON.parse(body) as { error: { code: string } };
  expect(error).toEqual({ code: error.code, message: expect.any(String) });
  return `${status} ${error.code}`;
};

describe('the bot service', () => {
  test('knows the documented paths and bots, in both shapes, and nothing else', async () => {
    await start();
    for (const path of [ECHO, ECHO.replace('/generic', ''), `${ECHO}?is_debug=true`])
      expect([path, await outcome(path)]).toEqual([path, 200]);
    const paths = [
      '/',
      `${ECHO}/`,
      `/v1${ECHO}`,
      ECHO.replace('sse', 'SSE'),
      ECHO.replace('demo', 'demo/more'),
    ];
    for (const path of paths) expect([path, await outcome(path)]).toEqual([path, '404 NOT_FOUND']);
    for (const method of ['PUT', 'DELETE', 'OPTIONS'])
      expect([method, await outcome(ECHO, '', KEY, method)]).toEqual([method, '404 NOT_FOUND']);
    for (const bot of ['nobody', 'constructor', '__proto__', '%E0%A4%A', '%ff'])
      expect([bot, await outcome(ECHO.replace('echo', bot))]).toEqual([bot, '404 BOT_NOT_FOUND']);
  });

  test('accepts each of its keys until it is disabled', async () => {
    await start({ keys: ['key-1', 'key-2'] });
    const withKey = (key?: string) => outcome(ECHO, '{}', { ...TYPE, ...(key && { 'X-API-KEY': key }) });
    expect([await withKey('key-1'), await withKey('key-2')]).toEqual([200, 200]);
    for (const wrong of ['key-3', 'key-1, key-2', undefined])
      expect(await withKey(wrong)).toBe('401 INVALID_API_KEY');
    setKeyEnabled(service, 'key-1', false);
    setKeyEnabled(service, 'key-3', true);
    expect(await withKey('key-1')).toBe('401 INVALID_API_KEY');
    expect([await withKey('key-2'), await withKey('key-3')]).toEqual([200, 200]);
  });

  test('refuses what is no message, and needs no field of one', async () => {
    await start();
    for (const [body, headers] of [
      ['hello', KEY],
      ['"hello"', KEY],
      ['null', KEY],
      ['{}', { ...KEY, 'Content-Type': 'text/plain' }],
    ] as const)
      expect([body, await outcome(ECHO, body, headers)]).toEqual([body, '400 INVALID_MESSAGE']);
    const [one, other] = await Promise.all([ask(ECHO, '{"text":7}'), ask(ECHO)]);
    for (const { body } of [one, other]) {
      expect(body).toContain('"customChannelId":null');
      expect(body).toContain('"You said nothing."');
    }
    expect(one.headers['x-trace-id']).not.toBe(other.headers['x-trace-id']);
  });

  test('a client that leaves before its message is whole is no fault', async () => {
    const onFault = jest.fn();
    await start({ onFault });
    const whole = rawMessage({ path: ECHO, body: '{"text":"hello"}', headers: ['X-API-KEY: key-1'] });
    const client = rawClient(service.port, whole.slice(0, -5));
    // By the first the request is seen, by the others that its client has left.
    await ask(ECHO);
    client.socket.destroy();
    for (let n = 0; n < 3; n += 1) await ask(ECHO);
    expect(onFault).not.toHaveBeenCalled();
  });
});

describe('a run', () => {
  test('streams the events that are seen in the field', async () => {
    await start();
    const { status, headers, body } = await ask(ECHO, JSON.stringify({ ...HELLO, text: 'one two' }));
    expect([status, headers['content-type']]).toEqual([200, 'text/event-stream']);
    expect(body.slice(-2)).toBe('\n\n');
    const events = demoEvents(body);
    const messageId = (events[1]?.fact.messageStart?.message as { messageId: string } | undefined)?.messageId;
    expect(messageId).toMatch(/^[0-9a-f-]{36}$/);
    const common = {
      ...{ id: undefined, requestId: headers['x-trace-id'], namespace: 'demo' },
      ...{ botProviderName: 'echo', customChannelId: 'c1' },
    };
    const event = (type: string, fact: object, more: object = {}) => ({
      ...{ ...common, eventType: `asgard.${type}`, fact },
      ...more,
    });
    const message = (text: string) => ({ message: { messageId, text } });
    const deltas = ['You', ' said:', ' one', ' two'];
    expect(events).toEqual([
      event('run.init', { runInit: {} }),
      event('message.start', { messageStart: { message: { messageId } } }),
      ...deltas.map((text) => event('message.delta', { messageDelta: message(text) })),
      // An event that is kept has a number and a time.
      event(...(['message.complete', { messageComplete: message('You said: one two') }] as const), {
        id: '2',
        createdAt: expect.any(String),
      }),
      event('run.done', { runDone: {} }),
    ]);
  });

  test('sends its words one by one', async () => {
    await start({ speed: { wordMs: 10 } });
    const client = service.watch({ text: 'word '.repeat(500) });
    await client.waitFor('messageDelta');
    expect(client.text()).not.toContain('run.done');
    client.socket.destroy();
  });

  test('of demo/steps ends after 30 steps with an error of the service', async () => {
    await start();
    const events = await service.say({}, 'steps');
    expect(typesOf(events).filter((type) => type === 'message.delta')).toHaveLength(30);
    expect(typesOf(events).at(-1)).toBe('run.error');
    expect(errorOf(events)).toEqual({
      code: 'STEP_LIMIT_EXCEEDED',
      message: expect.stringContaining('30 steps'),
      inner: '',
      location: { namespace: 'demo', workflowName: 'demo', processorName: 'answer', processorType: 'DEMO' },
    });
  });

  test('without a channel stops when its client leaves', async () => {
    const { promise: stopped, resolve } = Promise.withResolvers<void>();
    const endless = played(async function* (_ask, signal) {
      yield { startMessage: true };
      yield { say: 'Hello' };
      await once(signal, 'abort');
      resolve();
      throw signal.reason;
    });
    await start({ brains: { 'demo/endless': endless } });
    const client = service.watch({}, 'endless');
    await client.waitFor('Hello');
    client.socket.destroy();
    await stopped;
    // It still serves others.
    expect(await outcome(ECHO)).toBe(200);
  });
});

describe('the limits', () => {
  const freeze = () => jest.spyOn(performance, 'now').mockReturnValue(performance.now());

  test('are five requests a second for each endpoint and three minutes for a run, if nothing else is set', async () => {
    await start();
    const usual = await startBotService({ keys: ['key-1'], speed: { wordMs: 0 } });
    const post = (path: string) =>
      call(Number(usual.url.port), path, { method: 'POST', headers: KEY, body: '{}' });
    const timers = jest.spyOn(globalThis, 'setTimeout');
    freeze();
    const answers = await Promise.all(Array.from({ length: 7 }, () => post(ECHO)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 200, 429, 429]);
    for (const answer of answers.filter(({ status }) => status === 429))
      expect([codeOf(answer), answer.headers['retry-after']]).toEqual(['RATE_LIMITED', '1']);
    expect((await post(ECHO.replace('echo', 'guide'))).status).toBe(200);
    expect(timers).toHaveBeenCalledWith(expect.any(Function), 180_000);
    await usual.close();
  });

  test('are one for messages and histories, and every other path has its own', async () => {
    await start({ limit: 2 });
    freeze();
    const send = async () => (await service.send(HELLO)).status;
    const get = async (operation: string) => (await service.ask(`${operation}?custom_channel_id=c1`)).status;
    expect([await send(), await get('GET message/sse')]).toEqual([200, 200]);
    expect([await send(), await get('GET message/sse')]).toEqual([429, 429]);
    const meta = 'GET channel/metadata';
    expect([await get(meta), await get(meta), await get(meta)]).toEqual([200, 200, 429]);
    expect(await get('POST channel/clear')).toBe(204);
  });

  test('are exact in any second', async () => {
    await start();
    let now = 0;
    jest.spyOn(performance, 'now').mockImplementation(() => now);
    const admit = endpointLimit(5);
    const admittedAt = (at: number, endpoint = 'a/b') => {
      now = at;
      return admit(endpoint);
    };
    const first = [0, 1, 2, 3, 999, 999.9].map((at) => admittedAt(at));
    expect(first).toEqual([true, true, true, true, true, false]);
    expect(admittedAt(999.9, 'a/c')).toBe(true);
    expect([1000, 1000.5, 1001].map((at) => admittedAt(at))).toEqual([true, false, true]);
  });
});

/** What the bot `namespace/name` says to this key, or the code with which it refuses or fails. */
async function saysTo(key: string, namespace: string, name: string): Promise<string | undefined> {
  const path = `/ns/${namespace}/bot-provider/${name}/message/sse`;
  const answer = await ask(path, JSON.stringify(HELLO), { ...TYPE, 'X-API-KEY': key });
  return codeOf(answer) ?? textsOf(demoEvents(answer.body))[0];
}

describe('a key', () => {
  /** Another project, with a bot and a key. */
  function addProject({ settings }: DemoService) {
    const { id } = settings.createProject('Parcels');
    settings.addNamespace(id, 'parcels');
    settings.saveBot(id, botWith({ namespace: 'parcels' }));
    return { id, key: settings.createKey(id, 'one').open() };
  }

  test('reaches the bots of its project alone, as long as they are there', async () => {
    const settings = await start();
    const { id, key } = addProject(service);
    expect(await saysTo(key, 'parcels', 'helper')).toBe('MODEL_NOT_SET');
    for (const [ofKey, namespace, bot] of [
      [key, DEMO, 'echo'],
      [key, 'parcels', 'echo'],
      [key, 'nowhere', 'helper'],
      [service.key, 'parcels', 'helper'],
    ] as const)
      expect(await saysTo(ofKey, namespace, bot)).toBe('BOT_NOT_FOUND');
    expect(await saysTo(`${key}x`, 'parcels', 'helper')).toBe('INVALID_API_KEY');
    settings.deleteBot('parcels', 'helper');
    expect(await saysTo(key, 'parcels', 'helper')).toBe('BOT_NOT_FOUND');
    settings.deleteProject(id);
    expect(await saysTo(key, 'parcels', 'helper')).toBe('INVALID_API_KEY');
  });

  test('reaches a bot of the settings before the script of the same name, and no script once demo is gone', async () => {
    const settings = await start();
    expect(await saysTo(service.key, DEMO, 'echo')).toBe('You said: hello');
    settings.saveBot(DEMO, botWith({ name: 'echo' }));
    expect(await saysTo(service.key, DEMO, 'echo')).toBe('MODEL_NOT_SET');
    settings.removeNamespace(DEMO);
    expect(await saysTo(service.key, DEMO, 'guide')).toBe('BOT_NOT_FOUND');
  });

  describe('in a file', () => {
    let file: ReturnType<typeof settingsFile>;
    beforeEach(() => {
      file = settingsFile();
    });
    afterEach(() => file.remove());
    const database = (serviceSecret = SERVICE_SECRET) => ({ path: file.path, secret: secret(serviceSecret) });
    const restart = async (...keys: string[]) => {
      await service.close();
      await start({ database: database(), keys: ['key-1', ...keys] });
    };

    test('is obeyed at once as another process changes it, and after a restart', async () => {
      const outside = file.open();
      const key = outside.createKey(DEMO, 'outside').open();
      const [{ id = '' } = {}] = outside.keys(DEMO);
      await start({ database: database() });
      expect(await saysTo(key, DEMO, 'echo')).toBe('You said: hello');
      outside.setKeyEnabled(id, false);
      expect(await saysTo(key, DEMO, 'echo')).toBe('INVALID_API_KEY');
      setKeyEnabled(service, service.key, false);
      await restart();
      // A restart enables nothing.
      for (const refused of [key, service.key])
        expect(await saysTo(refused, DEMO, 'echo')).toBe('INVALID_API_KEY');
      outside.setKeyEnabled(id, true);
      expect(await saysTo(key, DEMO, 'echo')).toBe('You said: hello');
    });

    test('of the start can be of another project by now, and the project demo be gone', async () => {
      await start({ database: database() });
      const { key } = addProject(service);
      await restart(key);
      expect(await saysTo(key, 'parcels', 'helper')).toBe('MODEL_NOT_SET');
      expect(await saysTo('key-1', DEMO, 'echo')).toBe('You said: hello');
      service.settings.deleteProject(DEMO);
      await restart(key);
      expect(await saysTo(key, 'parcels', 'helper')).toBe('MODEL_NOT_SET');
      expect(await saysTo('key-1', 'parcels', 'helper')).toBe('INVALID_API_KEY');
    });

    test('is not served with another secret, or where the service cannot listen, which lets go of the file', async () => {
      file.open();
      await start();
      await expect(startBotService({ database: database(`${SERVICE_SECRET}!`) })).rejects.toThrow(
        /SERVICE_SECRET/,
      );
      const { port } = service;
      await expect(startBotService({ database: database(), port })).rejects.toThrow(/EADDRINUSE/);
    });
  });
});

describe('the cap of messages a day', () => {
  test('is told in the stream, exactly after as many messages, and nothing is run or kept', async () => {
    const settings = await start();
    settings.setDailyCap(DEMO, 7);
    const answers = await Promise.all(Array.from({ length: 20 }, () => service.send({ text: 'x' })));
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(answers.filter((answer) => codeOf(answer) === undefined)).toHaveLength(7);
    const { headers, body } = await service.send(HELLO);
    expect(headers['content-type']).toBe('text/event-stream');
    expect(typesOf(demoEvents(body))).toEqual(['run.init', 'run.error']);
    const told = { code: 'DAILY_LIMIT_REACHED', message: expect.stringMatching(/tomorrow/) };
    expect(errorOf(demoEvents(body))).toMatchObject(told);
    expect((await service.ask('GET channel/metadata?custom_channel_id=c1')).status).toBe(404);
  });

  test('stops no reset from being meant again, counts no resumption, and ends with the day', async () => {
    const doNotFake = [
      ...(['hrtime', 'nextTick', 'performance', 'queueMicrotask', 'setImmediate', 'clearImmediate'] as const),
      ...(['setInterval', 'clearInterval', 'setTimeout', 'clearTimeout'] as const),
    ];
    jest.useFakeTimers({ now: Date.parse('2026-03-01T23:59:59Z'), doNotFake });
    const settings = await start();
    settings.setDailyCap(DEMO, 2);
    await service.say(HELLO);
    for (const lastEventId of ['1', '1', '1'])
      expect(codeOf(await service.send({ customChannelId: 'c1' }, { lastEventId }))).toBeUndefined();
    await service.say({ ...HELLO, text: 'again' });
    const reset = await service.send({ ...HELLO, action: 'RESET_CHANNEL' });
    expect(codeOf(reset)).toBe('DAILY_LIMIT_REACHED');
    expect(textsOf(await service.history())).toEqual(['You said: hello', 'You said: again']);
    jest.setSystemTime(Date.parse('2026-03-02T00:00:00Z'));
    expect(codeOf(await service.send(HELLO))).toBeUndefined();
  });
});

test('a bot of the settings answers with the model of its project, and with what it knows', async () => {
  const server = await startModelServer();
  models = server;
  const endpoint = `${server.url}/v1`;
  const stream = (delta: object, reason: string) =>
    dataStream(chatChunk(delta), chatChunk({}, reason), '[DONE]');
  const search = {
    ...{ id: 'call_1', type: 'function' },
    function: { name: 'search_knowledge', arguments: '{"query":"leave"}' },
  };
  server.answer = ({ body }) =>
    JSON.stringify(body).includes('"role":"tool"')
      ? stream({ content: 'Hello' }, 'stop')
      : stream({ tool_calls: [{ index: 0, ...search }] }, 'tool_calls');
  const settings = await start({ assistant: modelSettings('openai-compatible', { endpoint }) });
  const say = () => service.say(HELLO, 'assistant');
  // Before the assistant of the same name, which has a model.
  const own = { name: 'assistant', instructions: 'Be brief.', usesKnowledge: true };
  settings.saveBot(DEMO, botWith(own));
  expect((await service.ask('GET metadata', { bot: 'assistant' })).status).toBe(200);
  expect(errorOf(await say())?.code).toBe('MODEL_NOT_SET');
  expect(server.requests).toEqual([]);
  const at = { kind: 'openai-compatible', endpoint, windowCharacters: 9000 } as const;
  settings.saveModel(DEMO, 'completion', { ...at, model: 'of-project' });
  settings.saveModel(DEMO, 'embedding', { ...at, model: 'embeds' });
  expect(textsOf(await say())).toEqual(['Hello']);
  const [question, answer] = server.requests;
  expect(question?.body).toMatchObject({ model: 'of-project' });
  expect(JSON.stringify(question?.body)).toContain('Be brief.');
  // Nothing is indexed, so nothing is paid to search it.
  expect(server.requests.map(({ path }) => path)).toEqual(Array(2).fill('/v1/chat/completions'));
  expect(JSON.stringify(answer?.body)).toContain('\\"found\\":[]');
});
