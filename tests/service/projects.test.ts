import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import { type BotServiceOptions, startBotService } from '../../src/service/bot-service.ts';
import { DEMO } from '../../src/service/settings/settings.ts';
import { call } from '../harness/clients/call.ts';
import {
  type DemoService,
  demoEvents,
  startDemoService,
  wholeMessages,
} from '../harness/service/demo-service.ts';
import { botWith, SERVICE_SECRET, setKeyEnabled, settingsFile } from '../harness/service/settings-file.ts';

const HELLO = { customChannelId: 'c1', customMessageId: 'm1', text: 'hello', action: 'NONE' };

let service: DemoService;
const start = async (options: Partial<BotServiceOptions> = {}) => {
  service = await startDemoService(options);
  return service.settings;
};
afterEach(async () => {
  jest.useRealTimers();
  await service.close();
});

/** What the bot `namespace/name` says to this key, or the code with which it refuses or fails. */
async function saysTo(key: string, [namespace, name]: [string, string]): Promise<string> {
  const { status, body } = await call(service.port, `/ns/${namespace}/bot-provider/${name}/message/sse`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-API-KEY': key },
    body: JSON.stringify(HELLO),
  });
  const [message] = status === 200 ? wholeMessages(demoEvents(body)) : [];
  return message?.text ?? /"code":"([A-Z_]+)"/.exec(body)?.[1] ?? '';
}

describe('a key', () => {
  test('reaches the bots of its project alone, as long as they are there', async () => {
    const settings = await start();
    const { id } = settings.createProject('Parcels');
    settings.addNamespace(id, 'parcels');
    settings.saveBot(id, botWith({ namespace: 'parcels' }));
    const key = settings.createKey(id, 'one').open();
    expect(await saysTo(key, ['parcels', 'helper'])).toBe('MODEL_NOT_SET');
    for (const [ofKey, ...bot] of [
      [key, DEMO, 'echo'],
      [key, 'parcels', 'echo'],
      [key, 'nowhere', 'helper'],
      [service.key, 'parcels', 'helper'],
    ] as const)
      expect(await saysTo(ofKey, [...bot])).toBe('BOT_NOT_FOUND');
    expect(await saysTo(`${key}x`, ['parcels', 'helper'])).toBe('INVALID_API_KEY');
    settings.deleteBot('parcels', 'helper');
    expect(await saysTo(key, ['parcels', 'helper'])).toBe('BOT_NOT_FOUND');
    settings.deleteProject(id);
    expect(await saysTo(key, ['parcels', 'helper'])).toBe('INVALID_API_KEY');
  });

  test('reaches a bot of the settings before the script of the same name, and no script once demo is gone', async () => {
    const settings = await start();
    expect(await saysTo(service.key, [DEMO, 'echo'])).toBe('You said: hello');
    settings.saveBot(DEMO, botWith({ name: 'echo' }));
    expect(await saysTo(service.key, [DEMO, 'echo'])).toBe('MODEL_NOT_SET');
    settings.removeNamespace(DEMO);
    expect(await saysTo(service.key, [DEMO, 'guide'])).toBe('BOT_NOT_FOUND');
  });
});

test('the models of a project are read for a run, and for no other request', async () => {
  const settings = await start();
  settings.saveBot(DEMO, botWith({ usesKnowledge: true }));
  const read = jest.spyOn(settings, 'model');
  expect((await service.ask('GET metadata', { bot: 'helper' })).status).toBe(200);
  expect((await service.ask('POST message/suspend?custom_channel_id=c1', { bot: 'helper' })).status).toBe(
    404,
  );
  expect(read).not.toHaveBeenCalled();
  expect(await saysTo(service.key, [DEMO, 'helper'])).toBe('MODEL_NOT_SET');
  expect(read.mock.calls.map(([, role]) => role).sort()).toEqual(['completion', 'embedding']);
});

describe('the service with a file', () => {
  let file: ReturnType<typeof settingsFile>;
  beforeEach(() => {
    file = settingsFile();
  });
  afterEach(() => file.remove());
  const database = () => ({ path: file.path, secret: secret(SERVICE_SECRET) });

  test('obeys at once what is changed in it, and has it after a restart', async () => {
    const outside = file.open();
    const key = outside.createKey(DEMO, 'outside').open();
    const [{ id = '' } = {}] = outside.keys(DEMO);
    await start({ database: database() });
    expect(await saysTo(key, [DEMO, 'echo'])).toBe('You said: hello');
    outside.setKeyEnabled(id, false);
    expect(await saysTo(key, [DEMO, 'echo'])).toBe('INVALID_API_KEY');
    setKeyEnabled(service, service.key, false);
    await service.close();
    await start({ database: database() });
    // A restart enables nothing.
    for (const refused of [key, service.key])
      expect(await saysTo(refused, [DEMO, 'echo'])).toBe('INVALID_API_KEY');
    outside.setKeyEnabled(id, true);
    expect(await saysTo(key, [DEMO, 'echo'])).toBe('You said: hello');
  });

  test('starts with keys that are of another project by now, and without the project demo', async () => {
    await start({ database: database() });
    const { id } = service.settings.createProject('Parcels');
    service.settings.addNamespace(id, 'parcels');
    service.settings.saveBot(id, botWith({ namespace: 'parcels' }));
    const key = service.settings.createKey(id, 'one').open();
    await service.close();
    await start({ database: database(), keys: ['key-1', key] });
    expect(await saysTo(key, ['parcels', 'helper'])).toBe('MODEL_NOT_SET');
    expect(await saysTo('key-1', [DEMO, 'echo'])).toBe('You said: hello');
    service.settings.deleteProject(DEMO);
    await service.close();
    await start({ database: database(), keys: ['key-1', key] });
    expect(await saysTo(key, ['parcels', 'helper'])).toBe('MODEL_NOT_SET');
    expect(await saysTo('key-1', ['parcels', 'helper'])).toBe('INVALID_API_KEY');
  });

  test('does not start with another secret, or where it cannot listen, and lets go of the file', async () => {
    file.open();
    await start();
    const wrong = { path: file.path, secret: secret(`${SERVICE_SECRET}!`) };
    await expect(startBotService({ database: wrong })).rejects.toThrow(/SERVICE_SECRET/);
    await expect(startBotService({ database: database(), port: service.port })).rejects.toThrow(/EADDRINUSE/);
  });
});

describe('the cap of messages a day', () => {
  const codeOf = (body: string) => /"code":"([A-Z_]+)"/.exec(body)?.[1];

  test('is told in the stream, exactly after as many messages, and nothing is run or kept', async () => {
    const settings = await start();
    settings.setDailyCap(DEMO, 7);
    const answers = await Promise.all(Array.from({ length: 20 }, () => service.send({ text: 'x' })));
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(answers.filter(({ body }) => codeOf(body) === undefined)).toHaveLength(7);
    const { headers, body } = await service.send(HELLO);
    expect(headers['content-type']).toBe('text/event-stream');
    const [init, error, ...others] = demoEvents(body);
    expect([init?.eventType, error?.eventType, others]).toEqual(['asgard.run.init', 'asgard.run.error', []]);
    expect(error?.fact.runError?.error).toMatchObject({
      code: 'DAILY_LIMIT_REACHED',
      message: expect.stringMatching(/tomorrow/),
    });
    expect((await service.ask('GET channel/metadata?custom_channel_id=c1')).status).toBe(404);
  });

  test('stops no reset from being meant again, counts no resumption, and ends with the day', async () => {
    jest.useFakeTimers({ now: Date.parse('2026-03-01T23:59:59Z'), doNotFake: EVERYTHING_BUT_DATE });
    const settings = await start();
    settings.setDailyCap(DEMO, 2);
    await service.say(HELLO);
    for (const lastEventId of ['1', '1', '1'])
      expect(codeOf((await service.send({ customChannelId: 'c1' }, { lastEventId })).body)).toBeUndefined();
    await service.say({ ...HELLO, text: 'again' });
    expect(codeOf((await service.send({ ...HELLO, action: 'RESET_CHANNEL' })).body)).toBe(
      'DAILY_LIMIT_REACHED',
    );
    const { body } = await service.ask('GET message/sse?custom_channel_id=c1');
    expect(wholeMessages(demoEvents(body)).map(({ text }) => text)).toEqual([
      'You said: hello',
      'You said: again',
    ]);
    jest.setSystemTime(Date.parse('2026-03-02T00:00:00Z'));
    expect(codeOf((await service.send(HELLO)).body)).toBeUndefined();
  });
});

const EVERYTHING_BUT_DATE = [
  ...(['hrtime', 'nextTick', 'performance', 'queueMicrotask', 'setImmediate', 'clearImmediate'] as const),
  ...(['setInterval', 'clearInterval', 'setTimeout', 'clearTimeout'] as const),
];
