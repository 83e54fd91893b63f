import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import type { BotServiceOptions } from '../../src/service/bot-service.ts';
import { openDatabase } from '../../src/service/settings/database.ts';
import { DEMO } from '../../src/service/settings/settings.ts';
import { openChannels } from '../../src/service/store/channels.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import {
  type DemoService,
  dataOf,
  demoEvents,
  startDemoService,
  wholeMessages,
} from '../harness/service/demo-service.ts';
import { SERVICE_SECRET, settingsFile } from '../harness/service/settings-file.ts';

const ID = 'custom_channel_id=c1';
const HELLO = { customChannelId: 'c1', customMessageId: 'm1', text: 'hello', action: 'NONE' };
const PROCESS = fileURLToPath(new URL('../harness/service/service-process.ts', import.meta.url));
const DAY_MS = 24 * 60 * 60 * 1000;

let file: ReturnType<typeof settingsFile>;
let service: DemoService | undefined;
const children: ChildProcess[] = [];
beforeEach(() => {
  file = settingsFile();
});
afterEach(async () => {
  jest.useRealTimers();
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await service?.close();
  service = undefined;
  file.remove();
});

/** Starts the service on the file, or starts it again. */
async function start(options: Partial<BotServiceOptions> = {}): Promise<DemoService> {
  await service?.close();
  const database = { path: file.path, secret: secret(SERVICE_SECRET) };
  service = await startDemoService({ database, speed: { wordMs: 0, silenceMs: 60_000 }, ...options });
  return service;
}

const history = async ({ ask }: DemoService, bot = 'echo', query = ID) =>
  demoEvents((await ask(`GET message/sse?${query}`, { bot })).body);
const metadata = async ({ ask }: DemoService, bot = 'echo', query = ID) => {
  const answer = await ask(`GET channel/metadata?${query}`, { bot });
  return answer.status === 200 ? dataOf(answer) : answer.status;
};
const typesOf = (events: readonly { eventType: string }[]) =>
  events.map(({ eventType }) => eventType.replace('asgard.', ''));
const errorIn = (event: ReturnType<typeof demoEvents>[number] | undefined) =>
  (event?.fact.runError?.error as { code: string; message: string } | undefined)?.code;

async function upload({ port, key, pathOf }: DemoService, channel: string, content: string): Promise<string> {
  const form = new FormData();
  form.append('file', new File([content], 'a.txt', { type: 'text/plain' }));
  form.append('customChannelId', channel);
  const headers = { 'X-API-KEY': key };
  const url = `http://127.0.0.1:${port}${pathOf('blob')}`;
  const { data } = (await (await fetch(url, { method: 'POST', headers, body: form })).json()) as {
    data: { blobId: string }[];
  };
  return data[0]?.blobId as string;
}

describe('a service that starts again with its file', () => {
  test('has what was said, the feedback, the title and the numbers', async () => {
    const first = await start();
    const [answer] = wholeMessages(await first.say(HELLO));
    const feedback = { customChannelId: 'c1', messageId: answer?.messageId, verdict: 'GOOD', comment: 'ü' };
    await first.ask('POST message/feedback', { body: JSON.stringify(feedback) });
    const [before, about] = [(await first.ask(`GET message/sse?${ID}`)).body, await metadata(first)];
    expect(about).toMatchObject({ title: 'hello', runState: 'IDLE' });
    const again = await start();
    expect([(await again.ask(`GET message/sse?${ID}`)).body, await metadata(again)]).toEqual([before, about]);
    // A run of before is resumed to its end.
    const resumed = demoEvents((await again.send(HELLO, { lastEventId: '1' })).body);
    expect(resumed.map(({ id, eventType }) => [id, eventType])).toEqual([
      ['2', 'asgard.message.complete'],
      ['3', 'asgard.message.feedback'],
      [undefined, 'asgard.run.done'],
    ]);
    expect((await again.say(HELLO)).findLast(({ id }) => id !== undefined)?.id).toBe('5');
  });

  test('has the consent that is waited for, and what is allowed for good', async () => {
    const tools = { ...HELLO, text: 'What time is it?' };
    const asked = (await (await start()).say(tools, 'tools')).at(-2)?.fact.toolCallConsent;
    const again = await start();
    expect((await history(again, 'tools')).at(-2)?.fact.toolCallConsent).toEqual(asked);
    const [{ toolCallId } = {}] = (asked?.pendingCalls ?? []) as { toolCallId?: string }[];
    const toolCallConsents = [{ toolCallId, result: 'ALLOW_ALWAYS' }];
    await again.say({ ...HELLO, action: 'RESPONSE_TOOL_CALL_CONSENT', toolCallConsents }, 'tools');
    expect(typesOf(await (await start()).say(tools, 'tools'))).toContain('tool_call.complete');
  });

  test('has the files of each channel, and of no other', async () => {
    const first = await start();
    const [mine, theirs] = [await upload(first, 'c1', 'mine'), await upload(first, 'c2', 'theirs')];
    const again = await start();
    const download = async (channel: string) =>
      (await again.ask(`GET channel-home/download?custom_channel_id=${channel}&relative_path=a.txt`)).body;
    expect([await download('c1'), await download('c2')]).toEqual(['mine', 'theirs']);
    const send = async (blobId: string) => (await again.send({ ...HELLO, blobIds: [blobId] })).status;
    expect([await send(mine), await send(theirs)]).toEqual([200, 400]);
    await again.ask(`DELETE channel?${ID}`);
    expect([JSON.parse(await download('c1')).error.code, await download('c2')]).toEqual([
      'CHANNEL_NOT_FOUND',
      'theirs',
    ]);
  });

  test('tells how a run failed, where it did and without a number', async () => {
    const first = await start();
    await first.say(HELLO, 'steps');
    await first.say({ ...HELLO, text: 'again' }, 'steps');
    const live = await history(first, 'steps');
    for (const events of [live, await history(await start(), 'steps')]) {
      expect(typesOf(events)).toEqual(['message.user', 'run.error', 'message.user', 'run.error']);
      expect(events.map(({ id }) => id)).toEqual(['1', undefined, '2', undefined]);
      expect(events[1]?.requestId).toBe(events[0]?.requestId);
      expect(errorIn(events[3])).toBe('STEP_LIMIT_EXCEEDED');
    }
    const resumed = await (service as DemoService).send(HELLO, { bot: 'steps', lastEventId: '1' });
    expect(typesOf(demoEvents(resumed.body))).toEqual(['run.error']);
  });

  test('is alone with it, and keeps it from other users of the machine', async () => {
    const { close } = await start();
    const database = { path: file.path, secret: secret(SERVICE_SECRET) };
    await expect(startDemoService({ database })).rejects.toThrow(/^Another bot service is running with/);
    expect([file.path, `${file.path}.lock`].map((path) => statSync(path).mode & 0o777)).toEqual([
      0o600, 0o600,
    ]);
    await close();
    await start();
  });
});

describe('a run that is under way when the service ends', () => {
  const rest = async (now: DemoService) => {
    const events = await history(now, 'slow');
    expect(typesOf(events)).toEqual(['message.user', 'run.error']);
    expect(events[0]?.fact.messageUser?.text).toBe('hello');
    expect([errorIn(events[1]), events[1]?.requestId]).toEqual(['INTERRUPTED', events[0]?.requestId]);
    const rejoined = await now.send(HELLO, { bot: 'slow', lastEventId: '1' });
    expect(demoEvents(rejoined.body).map(errorIn)).toEqual(['INTERRUPTED']);
    expect((await now.ask(`POST message/suspend?${ID}`, { bot: 'slow' })).status).toBe(404);
    expect(await metadata(now, 'slow')).toMatchObject({ runState: 'IDLE', title: 'hello' });
  };

  test('by kill -9 has an error, and the user can go on', async () => {
    const child = spawn(process.execPath, [PROCESS, file.path, SERVICE_SECRET, 'key-1']);
    children.push(child);
    const [port] = (await once(child.stdout, 'data')) as [Buffer];
    const path = '/ns/demo/bot-provider/slow/message/sse';
    const headers = ['X-API-KEY: key-1'];
    const client = rawClient(Number(port), rawMessage({ path, body: JSON.stringify(HELLO), headers }));
    await client.waitFor('" that."');
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
    const now = await start({ speed: { wordMs: 0, silenceMs: 0 } });
    await rest(now);
    expect(wholeMessages(await now.say(HELLO, 'slow'))).toHaveLength(1);
    expect(typesOf(await history(now, 'slow'))).toEqual([
      ...['message.user', 'run.error', 'message.user', 'message.complete', 'run.done'],
    ]);
  });

  test('in order has an error, and its half answer is not kept as whole', async () => {
    const client = (await start()).watch(HELLO, 'slow');
    await client.waitFor('" that."');
    const now = await start();
    await client.closed;
    expect(client.text()).not.toContain('run.done');
    await rest(now);
  });
});

describe('a conversation', () => {
  test('is kept for as many days as are set, since it was last used', async () => {
    const first = await start();
    for (const customChannelId of ['old', 'new']) await first.say({ ...HELLO, customChannelId });
    await upload(first, 'old', 'x');
    await first.close();
    const sql = file.tables();
    const age = (days: number, id: string) =>
      sql.run('UPDATE channels SET last_used_at = last_used_at - ? WHERE custom_id = ?', days * DAY_MS, id);
    age(8, 'old');
    age(6, 'new');
    const again = await start({ keepDays: 7 });
    const known = async (id: string) => typeof (await metadata(again, 'echo', `custom_channel_id=${id}`));
    expect([await known('old'), await known('new')]).toEqual(['number', 'object']);
    for (const table of ['files', 'runs', 'kept'])
      expect(sql.get(`SELECT count(*) AS n FROM ${table}`)?.n).toBe({ files: 0, runs: 1, kept: 2 }[table]);
  });

  test('is forgotten by a service that runs on, within an hour', () => {
    jest.useFakeTimers();
    const database = openDatabase();
    database.run("INSERT INTO projects (id, name, created_at) VALUES ('p', 'p', 0)");
    const gone: number[] = [];
    const all = openChannels(database, { keepDays: 1, isFile: false, onGone: (key) => void gone.push(key) });
    const { key } = all.findOrMake({ projectId: 'p', endpoint: 'demo/echo' }, 'c1');
    jest.advanceTimersByTime(DAY_MS - 1);
    expect(gone).toEqual([]);
    jest.advanceTimersByTime(60 * 60 * 1000 + 1);
    expect(gone).toEqual([key]);
    const nameless = all.makeNameless('r');
    expect(all.findNameless('r')?.key).toBe(nameless.key);
    jest.advanceTimersByTime(10 * 60 * 1000 + 1);
    expect(all.findNameless('r')).toBeUndefined();
    all.close();
    database.close();
  });

  test('is of one project, goes with its namespace or project, and then its run ends', async () => {
    const { settings, say, port } = await start();
    await say(HELLO);
    const other = settings.createProject('Other').id;
    const key = settings.createKey(other, 'k').open();
    const rows = () => file.tables().get('SELECT count(*) AS n FROM channels')?.n;
    expect(rows()).toBe(1);
    settings.removeNamespace(DEMO);
    expect(rows()).toBe(0);
    for (const remove of [() => settings.removeNamespace(DEMO), () => settings.deleteProject(other)]) {
      settings.addNamespace(other, DEMO);
      const path = '/ns/demo/bot-provider/slow/message/sse';
      const body = JSON.stringify(HELLO);
      const client = rawClient(port, rawMessage({ path, body, headers: [`X-API-KEY: ${key}`] }));
      await client.waitFor('" that."');
      expect(rows()).toBe(1);
      remove();
      expect(rows()).toBe(0);
      await client.waitFor('run.done');
    }
  });

  test('is found by the bot and the project in which it was made, and by no other', () => {
    const database = openDatabase();
    for (const id of ['p', 'q'])
      database.run('INSERT INTO projects (id, name, created_at) VALUES (?, ?, 0)', id, id);
    const all = openChannels(database, { keepDays: 1, isFile: false, onGone: () => {} });
    const at = (projectId: string, bot = 'echo') => ({ projectId, endpoint: `demo/${bot}` });
    const { key } = all.findOrMake(at('p'), 'c1');
    expect(all.find(at('p'), 'c1')?.key).toBe(key);
    for (const other of [at('q'), at('p', 'guide')]) expect(all.find(other, 'c1')).toBeUndefined();
    all.deleteOf('p', 'demo', 'ech');
    all.deleteOf('p', 'dem');
    expect(all.find(at('p'), 'c1')?.key).toBe(key);
    all.deleteOf('p', 'demo', 'echo');
    // Nobody ever gets its number again.
    expect(all.findOrMake(at('p'), 'c1').key).toBeGreaterThan(key);
    all.close();
    database.close();
  });
});
