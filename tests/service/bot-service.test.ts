import { once } from 'node:events';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { type BotService, type BotServiceOptions, startBotService } from '../../src/service/bot-service.ts';
import type { Brain } from '../../src/service/brains/steps.ts';
import { call } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { setKeyEnabled } from '../harness/service/settings-file.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
const GUIDE = ECHO.replace('echo', 'guide');
const STEPS = ECHO.replace('echo', 'steps');
const SLOW = ECHO.replace('echo', 'slow');
const JSON_KEY = { 'Content-Type': 'application/json', 'X-API-KEY': 'key-1' };

let service: BotService;
afterEach(async () => {
  jest.restoreAllMocks();
  await service.close();
});

async function start(options: Partial<BotServiceOptions> = {}) {
  service = await startBotService({ keys: ['key-1', 'key-2'], speed: { wordMs: 0 }, ...options });
}

const port = () => Number(service.url.port);
const ask = (path: string, body = '{}', headers: Record<string, string> = JSON_KEY) =>
  call(port(), path, { method: 'POST', headers, body });

/** Sends a message over a raw connection, to see its bytes as they come. */
const watch = (path: string, body = '{}') =>
  rawClient(port(), rawMessage({ path, body, headers: ['X-API-KEY: key-1', 'Connection: close'] }));

interface BotEvent {
  readonly eventType: string;
  readonly fact: Record<string, Record<string, Record<string, unknown>>>;
}

/** The events of a stream; each has its type as name and one line of data. */
function eventsOf(body: string): BotEvent[] {
  const parts = body.split('\n\n');
  expect(parts.pop()).toBe('');
  return parts.map((part) => {
    const [, name, data] = /^(?:id: \d+\n)?event: ([a-z.]+)\ndata: (\{.*\})$/.exec(part) ?? [];
    const event = JSON.parse(data as string) as BotEvent;
    expect(event.eventType).toBe(name);
    return event;
  });
}

const refusal = (code: string) => ({ error: { code, message: expect.any(String) } });

describe('the demo bot service', () => {
  test('knows only the documented path', async () => {
    await start();
    for (const path of [
      '/',
      `${ECHO}/`,
      `${ECHO}/more`,
      `/v1${ECHO}`,
      ECHO.replace('sse', 'SSE'),
      ECHO.replace('/sse', ''),
      ECHO.replace('demo', 'demo/more'),
    ]) {
      expect({ path, status: (await ask(path)).status }).toEqual({ path, status: 404 });
    }
    expect((await ask(`${ECHO}?is_debug=true`)).status).toBe(200);
  });

  test.each(['PUT', 'DELETE', 'OPTIONS'])('refuses %s', async (method) => {
    await start();
    const { status, body } = await call(port(), ECHO, { method, headers: JSON_KEY });
    expect(status).toBe(404);
    expect(JSON.parse(body)).toEqual(refusal('NOT_FOUND'));
  });

  test('accepts each of its keys until it is disabled', async () => {
    await start();
    const statusWith = async (key?: string) =>
      (await ask(ECHO, '{}', { 'Content-Type': 'application/json', ...(key ? { 'X-API-KEY': key } : {}) }))
        .status;
    expect(await statusWith('key-1')).toBe(200);
    expect(await statusWith('key-2')).toBe(200);
    expect(await statusWith('key-3')).toBe(401);
    expect(await statusWith('key-1, key-2')).toBe(401);
    expect(await statusWith()).toBe(401);
    setKeyEnabled(service, 'key-1', false);
    expect(await statusWith('key-1')).toBe(401);
    expect(await statusWith('key-2')).toBe(200);
    setKeyEnabled(service, 'key-3', true);
    expect(await statusWith('key-3')).toBe(200);
  });

  test('answers a refusal as JSON', async () => {
    await start();
    const answer = await ask(ECHO, '{}', { 'Content-Type': 'application/json' });
    expect(answer.headers['content-type']).toBe('application/json');
    expect(JSON.parse(answer.body)).toEqual(refusal('INVALID_API_KEY'));
  });

  test.each(['nobody', 'constructor', '__proto__'])('knows no bot %s', async (bot) => {
    await start();
    const { status, body } = await ask(ECHO.replace('echo', bot));
    expect(status).toBe(404);
    expect(JSON.parse(body)).toEqual(refusal('BOT_NOT_FOUND'));
  });

  test('a client that leaves before its message is whole is no fault', async () => {
    const onFault = jest.fn();
    await start({ onFault });
    const whole = rawMessage({ path: ECHO, body: '{"text":"hello"}', headers: ['X-API-KEY: key-1'] });
    const client = rawClient(port(), whole.slice(0, -5));
    // By the first the request is seen, by the others that its client has left.
    await ask(GUIDE);
    client.socket.destroy();
    for (let n = 0; n < 3; n += 1) await ask(GUIDE);
    expect(onFault).not.toHaveBeenCalled();
  });

  test('knows no bot whose name is not in UTF-8', async () => {
    await start();
    for (const name of ['%E0%A4%A', '%', '%ff']) {
      const { status, body } = await ask(ECHO.replace('echo', name));
      expect({ name, status }).toEqual({ name, status: 404 });
      expect(JSON.parse(body)).toEqual(refusal('BOT_NOT_FOUND'));
    }
  });

  test.each([
    ['not JSON', 'hello', JSON_KEY],
    ['JSON but not an object', '"hello"', JSON_KEY],
    ['null', 'null', JSON_KEY],
    ['of another media type', '{}', { ...JSON_KEY, 'Content-Type': 'text/plain' }],
  ])('refuses a message that is %s', async (_what, body, headers) => {
    await start();
    const answer = await ask(ECHO, body, headers);
    expect(answer.status).toBe(400);
    expect(JSON.parse(answer.body)).toEqual(refusal('INVALID_MESSAGE'));
  });
});

describe('a run of the demo bot service', () => {
  test('streams the events that are seen in the field', async () => {
    await start();
    const message = { customChannelId: 'c1', customMessageId: 'm1', text: 'one two', action: 'NONE' };
    const { status, headers, body } = await ask(ECHO, JSON.stringify(message));
    expect(status).toBe(200);
    expect(headers['content-type']).toBe('text/event-stream');
    const events = eventsOf(body);
    const [start_, ...rest] = events.slice(1);
    const messageId = start_?.fact.messageStart?.message?.messageId;
    expect(messageId).toMatch(/^[0-9a-f-]{36}$/);
    const common = {
      requestId: headers['x-trace-id'],
      namespace: 'demo',
      botProviderName: 'echo',
      customChannelId: 'c1',
    };
    const delta = (text: string) => ({
      ...common,
      eventType: 'asgard.message.delta',
      fact: { messageDelta: { message: { messageId, text } } },
    });
    expect(events[0]).toEqual({ ...common, eventType: 'asgard.run.init', fact: { runInit: {} } });
    expect(start_).toEqual({
      ...common,
      eventType: 'asgard.message.start',
      fact: { messageStart: { message: { messageId } } },
    });
    expect(rest).toEqual([
      ...['You', ' said:', ' one', ' two'].map(delta),
      {
        ...common,
        // Of what is kept, the service says when.
        createdAt: expect.any(String),
        eventType: 'asgard.message.complete',
        fact: { messageComplete: { message: { messageId, text: 'You said: one two' } } },
      },
      { ...common, eventType: 'asgard.run.done', fact: { runDone: {} } },
    ]);
  });

  test('needs no field of the message', async () => {
    await start();
    const { body } = await ask(ECHO, '{"text":7}');
    expect(body).toContain('"customChannelId":null');
    expect(body).toContain('"You said nothing."');
  });

  test('has its own ids', async () => {
    await start();
    const [one, other] = await Promise.all([ask(ECHO), ask(ECHO)]);
    expect(one.headers['x-trace-id']).not.toBe(other.headers['x-trace-id']);
  });

  test('sends its words one by one', async () => {
    await start({ speed: { wordMs: 2_000 } });
    const client = watch(ECHO, JSON.stringify({ text: 'word '.repeat(200) }));
    await client.waitFor('messageDelta');
    expect(client.text()).not.toContain('run.done');
    client.socket.destroy();
  });

  test('of demo/slow is silent in the middle', async () => {
    await start({ speed: { wordMs: 0, silenceMs: 60_000 } });
    const client = watch(SLOW);
    await client.waitFor('" that."');
    // Without the silence, the next word would have come before the answer to this.
    await ask(ECHO);
    expect(client.text()).not.toContain('" Here"');
    client.socket.destroy();
  });

  test('of demo/steps ends after 30 steps with an error of the service', async () => {
    await start();
    const events = eventsOf((await ask(STEPS)).body);
    expect(events.filter(({ eventType }) => eventType === 'asgard.message.delta')).toHaveLength(30);
    expect(events.at(-1)).toMatchObject({
      eventType: 'asgard.run.error',
      fact: {
        runError: {
          error: {
            code: 'STEP_LIMIT_EXCEEDED',
            message: expect.stringContaining('30 steps'),
            inner: '',
            location: {
              namespace: 'demo',
              workflowName: 'demo',
              processorName: 'answer',
              processorType: 'DEMO',
            },
          },
        },
      },
    });
    expect(events.map(({ eventType }) => eventType)).not.toContain('asgard.run.done');
  });

  test('of demo/resume breaks off, and a resumption sends what came after the last message that was kept', async () => {
    await start();
    const RESUME = ECHO.replace('echo', 'resume');
    const client = watch(RESUME);
    await client.closed;
    const ids = (text: string) =>
      [...text.matchAll(/^id: (.+)\nevent: (.+)$/gm)].map((found) => found.slice(1));
    const broken = client.text();
    const [[id = '', type] = []] = ids(broken);
    expect(ids(broken)).toHaveLength(1);
    expect(type).toBe('asgard.message.complete');
    expect(broken).not.toMatch(/run\.done| and"/);
    const { body } = await ask(RESUME, '{}', { ...JSON_KEY, 'Last-Event-ID': id });
    // Nothing of it was sent before the kept message, and nothing after it differs.
    const tail = broken.slice(broken.indexOf('event: asgard.message.start', broken.indexOf(id)));
    const events = tail.split('\r\n').filter((line) => line.includes('event: '));
    for (const event of events) expect(body).toContain(event);
    expect(body).not.toContain('run.init');
    expect(body).toMatch(/" and".*run\.done/s);
    expect(ids(body).map(([next]) => next)).toEqual([id.replace(/1$/, '2')]);
  });

  test('stops when the client leaves', async () => {
    const { promise: stopped, resolve } = Promise.withResolvers<void>();
    const endless: Brain = {
      isResumable: false,
      hasSandbox: false,
      metadata: {},
      async *answer(_ask, signal) {
        yield { startMessage: true };
        yield { say: 'Hello' };
        await once(signal, 'abort');
        resolve();
        throw signal.reason;
      },
    };
    await start({ brains: { 'test/endless': endless } });
    const client = watch(ECHO.replace('demo', 'test').replace('echo', 'endless'));
    await client.waitFor('Hello');
    client.socket.destroy();
    await stopped;
    // It still serves others.
    expect((await ask(ECHO)).status).toBe(200);
  });
});

describe('a suspend of the demo bot service', () => {
  const SUSPEND = ECHO.replace('sse', 'suspend').replace('echo', 'slow');
  const suspend = (query: string, path = SUSPEND) =>
    call(port(), `${path}?${query}`, { method: 'POST', headers: { 'X-API-KEY': 'key-1' } });

  test.each([SUSPEND, SUSPEND.replace('/generic', '')])('of %s ends the run of the channel', async (path) => {
    await start();
    const client = watch(SLOW, JSON.stringify({ customChannelId: 'c 1' }));
    await client.waitFor('" that."');
    expect((await suspend('custom_channel_id=another', path)).status).toBe(404);
    expect((await suspend('custom_channel_id=c+1&request_id=another', path)).status).toBe(404);
    const answer = await suspend('custom_channel_id=c+1', path);
    expect([answer.status, JSON.parse(answer.body).data]).toEqual([200, { suspended: true }]);
    await client.closed;
    expect(client.text()).toContain('run.done');
    expect(client.text()).not.toMatch(/run\.error|Here is/);
    const again = await suspend('custom_channel_id=c+1', path);
    expect([again.status, JSON.parse(again.body)]).toEqual([404, refusal('NO_RUN')]);
  });

  test('needs a key and a channel', async () => {
    await start();
    expect((await suspend('')).status).toBe(400);
    expect((await call(port(), SUSPEND, { method: 'POST' })).status).toBe(401);
  });
});
