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
  codeOf,
  type DemoEvent,
  type DemoService,
  dataOf,
  demoEvents,
  errorOf,
  idsOf,
  startDemoService,
  textsOf,
  typesOf,
  wholeMessages,
} from '../harness/service/demo-service.ts';
import { SERVICE_SECRET, settingsFile } from '../harness/service/settings-file.ts';

const ID = 'custom_channel_id=c1';
const HELLO = { customChannelId: 'c1', customMessageId: 'm1', text: 'hello', action: 'NONE' };
const DAY_MS = 24 * 60 * 60 * 1000;

let service: DemoService | undefined;
let file: ReturnType<typeof settingsFile> | undefined;
beforeEach(() => {
  file = undefined;
});
afterEach(async () => {
  jest.useRealTimers();
  await service?.close();
  service = undefined;
  file?.remove();
});

/** Starts the service, on the file if there is one, or starts it again. Its bot `slow` is silent in the middle. */
async function start(options: BotServiceOptions = {}): Promise<DemoService> {
  await service?.close();
  const database = file && { path: file.path, secret: secret(SERVICE_SECRET) };
  service = await startDemoService({ database, speed: { wordMs: 0, silenceMs: 60_000 }, ...options });
  return service;
}

const metadata = async ({ ask }: DemoService, { bot = 'echo', id = 'c1' } = {}) => {
  const answer = await ask(`GET channel/metadata?custom_channel_id=${id}`, { bot });
  return answer.status === 200 ? dataOf(answer) : `${answer.status} ${codeOf(answer)}`;
};
/** What both said, oldest first. */
const spoken = (events: readonly DemoEvent[]) =>
  events.flatMap((event) => (event.fact.messageUser?.text as string | undefined) ?? textsOf([event]));

async function upload({ form }: DemoService, channel: string, content: string): Promise<string> {
  const answer = await form('POST blob', [
    ['file', new File([content], 'a.txt', { type: 'text/plain' })],
    ['customChannelId', channel],
  ]);
  return (JSON.parse(answer.body) as { data: { blobId: string }[] }).data[0]?.blobId ?? '';
}

describe('the history of a channel', () => {
  test('has what both said, with a number each, and ends when no run is open', async () => {
    const { say, history, ask } = await start();
    await say(HELLO);
    await say({ ...HELLO, text: 'again', customMessageId: 'm2' });
    const { status, headers } = await ask(`GET message/sse?${ID}`);
    expect([status, headers['content-type']]).toEqual([200, 'text/event-stream']);
    const events = await history();
    const types = ['message.user', 'message.complete', 'message.user', 'message.complete', 'run.done'];
    expect(typesOf(events)).toEqual(types);
    expect(spoken(events)).toEqual(['hello', 'You said: hello', 'again', 'You said: again']);
    expect(idsOf(events)).toEqual(['1', '2', '3', '4']);
    expect(events[0]?.fact.messageUser).toEqual({
      messageId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      text: 'hello',
      customMessageId: 'm1',
      blobIds: [],
      blobs: [],
    });
    expect(events.every(({ customChannelId }) => customChannelId === 'c1')).toBe(true);
    // What is kept has its time.
    for (const { id, createdAt } of events)
      expect(createdAt).toEqual(id && new Date(createdAt as string).toISOString());
    expect(idsOf(await history({ lastEventId: '2' }))).toEqual(['3', '4']);
    expect(idsOf(await history({ lastEventId: '4' }))).toEqual([]);
    // An id that is none of its own means: from the beginning.
    expect(idsOf(await history({ lastEventId: 'x' }))).toEqual(['1', '2', '3', '4']);
  });

  test('is live while a run is open, and ends with it, also after the reader of its message has left', async () => {
    const demo = await start();
    const sender = demo.watch(HELLO, 'slow');
    await sender.waitFor('" that."');
    sender.socket.destroy();
    const live = demo.history({ bot: 'slow' });
    expect(await metadata(demo, { bot: 'slow' })).toMatchObject({ runState: 'RUNNING' });
    expect((await demo.suspend('slow')).status).toBe(200);
    const events = await live;
    expect(spoken(events)).toEqual(['hello', 'Let me think about that.']);
    expect(typesOf(events).slice(0, 3)).toEqual(['message.user', 'run.init', 'message.start']);
    expect(typesOf(events).slice(-2)).toEqual(['message.complete', 'run.done']);
    expect(await metadata(demo, { bot: 'slow' })).toMatchObject({ runState: 'IDLE' });
  });

  test('is of one bot and of one channel only', async () => {
    const { say, history } = await start();
    await say(HELLO);
    await say({ ...HELLO, customChannelId: 'c2', text: 'other' });
    await say({ ...HELLO, text: 'guide me' }, 'guide');
    expect(idsOf(await say({ text: 'no channel' }))).toEqual([]);
    expect(spoken(await history())).toEqual(['hello', 'You said: hello']);
    expect(spoken(await history({ id: 'c2' }))).toEqual(['other', 'You said: other']);
    expect(spoken(await history({ bot: 'guide' }))[0]).toBe('guide me');
  });

  test('forgets the oldest of too much', async () => {
    const { say, history } = await start();
    for (let n = 0; n < 102; n++) await say({ ...HELLO, text: `n${n}` });
    const events = await history();
    expect(idsOf(events)).toHaveLength(200);
    expect(spoken(events).at(-1)).toBe('You said: n101');
    const long = 'x'.repeat(200_000);
    await say({ ...HELLO, text: long });
    expect(spoken(await history())).toEqual([`You said: ${long}`]);
  });
});

describe('a channel', () => {
  test('has a title after the first message, and is not found before', async () => {
    const demo = await start();
    expect(await metadata(demo)).toBe('404 CHANNEL_NOT_FOUND');
    await demo.say({ customChannelId: 'c1', action: 'NONE', text: '' });
    // A nudge: nothing of the user is kept.
    expect(spoken(await demo.history())).toEqual(['You said nothing.']);
    expect(await metadata(demo)).toMatchObject({ title: null });
    await demo.say({ ...HELLO, text: 'a'.repeat(100) });
    await demo.say({ ...HELLO, text: 'second' });
    expect(JSON.parse((await demo.ask(`GET channel/metadata?${ID}`)).body)).toEqual({
      ...{ isSuccess: true, error: null, errorCode: null },
      data: {
        customChannelId: 'c1',
        title: 'a'.repeat(60),
        runState: 'IDLE',
        lastActivityAt: expect.stringMatching(/^\d{4}-.*Z$/),
        launchedSandboxes: [expect.objectContaining({ sandboxName: 'demo' })],
      },
    });
  });

  test.each([
    ...['GET message/sse', 'GET channel/metadata', 'DELETE channel', 'POST channel/clear'],
    'POST message/suspend',
  ])('must exist and be named for %s', async (operation) => {
    const { ask } = await start();
    for (const query of ['', '?custom_channel_id=', `?custom_channel_id=${'x'.repeat(257)}`])
      expect((await ask(`${operation}${query}`)).status).toBe(400);
    expect((await ask(`${operation}?custom_channel_id=none`)).status).toBe(404);
    const headers = { 'X-API-KEY': 'wrong' };
    expect((await ask(`${operation}?${ID}`, { headers })).status).toBe(401);
  });

  test('is gone after it was deleted, and its open run has ended', async () => {
    const demo = await start();
    const sender = demo.watch(HELLO, 'slow');
    await sender.waitFor('" that."');
    const answer = await demo.ask(`DELETE channel?${ID}`, { bot: 'slow' });
    expect([answer.status, answer.body]).toEqual([204, '']);
    await sender.closed;
    expect(sender.text()).toContain('run.done');
    expect(await metadata(demo, { bot: 'slow' })).toBe('404 CHANNEL_NOT_FOUND');
  });

  test('is emptied by a clear, after which its numbers go on, and by a reset, which then answers its message', async () => {
    const demo = await start();
    const { say, history } = demo;
    await say(HELLO);
    expect((await demo.ask(`POST channel/clear?${ID}`)).status).toBe(204);
    expect(spoken(await history())).toEqual([]);
    expect(await metadata(demo)).toMatchObject({ title: null });
    await say(HELLO);
    expect(idsOf(await history())).toEqual(['3', '4']);
    expect(spoken(await say({ ...HELLO, action: 'RESET_CHANNEL', text: 'anew' }))).toEqual([
      'You said: anew',
    ]);
    expect(spoken(await history())).toEqual(['anew', 'You said: anew']);
    const withFiles = await demo.send({ ...HELLO, action: 'RESET_CHANNEL', blobIds: ['b'] });
    expect([withFiles.status, codeOf(withFiles)]).toEqual([400, 'INVALID_MESSAGE']);
    expect(spoken(await history())).toHaveLength(2);
  });

  test('takes no unknown action and no id that is not a text', async () => {
    const demo = await start();
    const wrong = [{ action: 'BREAK' }, { customChannelId: 7 }, { customChannelId: '' }, { blobIds: 'b' }];
    for (const one of wrong) expect((await demo.send({ ...HELLO, ...one })).status).toBe(400);
    expect(await metadata(demo)).toBe('404 CHANNEL_NOT_FOUND');
  });

  test('is forgotten if 200 others came later', async () => {
    const demo = await start();
    const fill = (id: string) => demo.send({ customChannelId: id, text: 'x' });
    for (const id of ['c1', 'c2']) await fill(id);
    await Promise.all(Array.from({ length: 198 }, (_one, n) => fill(`n${n}`)));
    // To be asked for makes a channel the newest.
    expect(await metadata(demo)).toMatchObject({ runState: 'IDLE' });
    await fill('last');
    expect(await metadata(demo)).toMatchObject({ runState: 'IDLE' });
    expect(await metadata(demo, { id: 'c2' })).toBe('404 CHANNEL_NOT_FOUND');
  });
});

test('a suspend stops the run with the id, or all of the channel if none is given', async () => {
  const { suspend, watch } = await start();
  const [one, other] = [watch(HELLO, 'slow'), watch(HELLO, 'slow')];
  await Promise.all([one.waitFor('" that."'), other.waitFor('" that."')]);
  const [, id] = /"requestId":"([^"]+)"/.exec(one.text()) ?? [];
  expect((await suspend('slow', '&request_id=another')).status).toBe(404);
  const answer = await suspend('slow', `&request_id=${id}`);
  expect([answer.status, dataOf(answer)]).toEqual([200, { suspended: true }]);
  await one.closed;
  expect(one.text()).toContain('run.done');
  expect(one.text()).not.toMatch(/run\.error|Here is/);
  expect(other.text()).not.toContain('run.done');
  const again = await suspend('slow', `&request_id=${id}`);
  expect([again.status, codeOf(again)]).toEqual([404, 'NO_RUN']);
  expect((await suspend('slow')).status).toBe(200);
  await other.closed;
  expect(other.text()).toContain('run.done');
});

describe('feedback', () => {
  /** Starts the service, sends a message, and gives feedback to its answer. */
  async function answered() {
    const demo = await start();
    const [answer] = wholeMessages(await demo.say(HELLO));
    const messageId = `${answer?.messageId}`;
    const give = (feedback: object) => {
      const body = JSON.stringify({ customChannelId: 'c1', verdict: 'GOOD', comment: '', ...feedback });
      return demo.ask('POST message/feedback', { body });
    };
    return { ...demo, messageId, give };
  }

  test('is kept in the history of its channel', async () => {
    const { messageId, give, history } = await answered();
    const given = { verdict: 'BAD', comment: 'ü'.repeat(4096) };
    const answer = await give({ messageId, ...given });
    expect([answer.status, dataOf(answer)]).toEqual([200, { messageId: expect.any(String), seq: 3 }]);
    const event = (await history()).find(({ eventType }) => eventType === 'asgard.message.feedback');
    const own = { messageId: dataOf(answer).messageId, targetMessageId: messageId };
    expect([event?.id, event?.fact.messageFeedback]).toEqual(['3', { ...own, ...given }]);
  });

  test('must name a message of the bot in this channel, and a verdict', async () => {
    const { messageId, give, say, history, ask } = await answered();
    await say({ ...HELLO, customChannelId: 'c2' });
    const ofUser = (await history())[0]?.fact.messageUser?.messageId;
    const wrong: [string, object[]][] = [
      [
        '404 MESSAGE_NOT_FOUND',
        [{ messageId: 'x' }, {}, { messageId: ofUser }, { messageId, customChannelId: 'c2' }],
      ],
      ['404 CHANNEL_NOT_FOUND', [{ messageId, customChannelId: 'c3' }]],
      ['400 INVALID_CHANNEL', [{ messageId, customChannelId: null }]],
      [
        '400 INVALID_FEEDBACK',
        [{ verdict: 'good' }, { verdict: ['GOOD'] }, { comment: 'ü'.repeat(4097) }, { comment: 7 }].map(
          (one) => ({ messageId, ...one }),
        ),
      ],
    ];
    for (const [refusal, all] of wrong)
      for (const feedback of all) {
        const answer = await give(feedback);
        expect([feedback, `${answer.status} ${codeOf(answer)}`]).toEqual([feedback, refusal]);
      }
    expect((await ask('POST message/feedback', { body: 'no JSON' })).status).toBe(400);
  });
});

describe('a service that starts again with its file', () => {
  beforeEach(() => {
    file = settingsFile();
  });

  test('has what was said, the feedback, the title and the numbers', async () => {
    const first = await start();
    const [answer] = wholeMessages(await first.say(HELLO));
    const feedback = { customChannelId: 'c1', messageId: answer?.messageId, verdict: 'GOOD', comment: 'ü' };
    await first.ask('POST message/feedback', { body: JSON.stringify(feedback) });
    const before = [await first.history(), await metadata(first)];
    expect(before).toMatchObject([{}, { title: 'hello', runState: 'IDLE' }]);
    const again = await start();
    expect([await again.history(), await metadata(again)]).toEqual(before);
    // A run of before is resumed to its end.
    const resumed = demoEvents((await again.send(HELLO, { lastEventId: '1' })).body);
    expect(typesOf(resumed)).toEqual(['message.complete', 'message.feedback', 'run.done']);
    expect(idsOf(resumed)).toEqual(['2', '3']);
    expect(idsOf(await again.say(HELLO)).at(-1)).toBe('5');
  });

  test('has the consent that is waited for, and what is allowed for good', async () => {
    const tools = { ...HELLO, text: 'What time is it?' };
    const asked = (await (await start()).say(tools, 'tools')).at(-2)?.fact.toolCallConsent;
    const again = await start();
    expect((await again.history({ bot: 'tools' })).at(-2)?.fact.toolCallConsent).toEqual(asked);
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
    expect(await download('c1')).toContain('CHANNEL_NOT_FOUND');
    expect(await download('c2')).toBe('theirs');
  });

  test('tells how a run failed, where it did and without a number', async () => {
    const first = await start();
    await first.say(HELLO, 'steps');
    await first.say({ ...HELLO, text: 'again' }, 'steps');
    const live = await first.history({ bot: 'steps' });
    const again = await start();
    for (const events of [live, await again.history({ bot: 'steps' })]) {
      expect(typesOf(events)).toEqual(['message.user', 'run.error', 'message.user', 'run.error']);
      expect(events.map(({ id }) => id)).toEqual(['1', undefined, '2', undefined]);
      expect(events[1]?.requestId).toBe(events[0]?.requestId);
      expect(errorOf(events)?.code).toBe('STEP_LIMIT_EXCEEDED');
    }
    // One that ended before the last event that is known is told no more.
    expect(typesOf(await again.history({ bot: 'steps', lastEventId: '2' }))).toEqual(['run.error']);
    const { body } = await again.send(HELLO, { bot: 'steps', lastEventId: '1' });
    expect(typesOf(demoEvents(body))).toEqual(['run.error']);
  });

  test('is alone with it, and keeps it from other users of the machine', async () => {
    const { close } = await start();
    const path = `${file?.path}`;
    const database = { path, secret: secret(SERVICE_SECRET) };
    await expect(startDemoService({ database })).rejects.toThrow(/^Another bot service is running with/);
    expect([path, `${path}.lock`].map((one) => statSync(one).mode & 0o777)).toEqual([0o600, 0o600]);
    await close();
    await start();
  });
});

describe('a run that is under way when the service ends', () => {
  const PROCESS = fileURLToPath(new URL('../harness/service/service-process.ts', import.meta.url));
  let child: ChildProcess | undefined;
  beforeEach(() => {
    file = settingsFile();
  });
  afterEach(() => void child?.kill('SIGKILL'));

  const rest = async (now: DemoService) => {
    const events = await now.history({ bot: 'slow' });
    expect(typesOf(events)).toEqual(['message.user', 'run.error']);
    expect(spoken(events)).toEqual(['hello']);
    expect([errorOf(events)?.code, events[1]?.requestId]).toEqual(['INTERRUPTED', events[0]?.requestId]);
    const rejoined = demoEvents((await now.send(HELLO, { bot: 'slow', lastEventId: '1' })).body);
    expect([rejoined.length, errorOf(rejoined)?.code]).toEqual([1, 'INTERRUPTED']);
    expect((await now.suspend('slow')).status).toBe(404);
    expect(await metadata(now, { bot: 'slow' })).toMatchObject({ runState: 'IDLE', title: 'hello' });
  };

  test('by kill -9 has an error, and the user can go on', async () => {
    const running = spawn(process.execPath, [PROCESS, `${file?.path}`, SERVICE_SECRET, 'key-1']);
    child = running;
    const [port] = (await once(running.stdout, 'data')) as [Buffer];
    const path = '/ns/demo/bot-provider/slow/message/sse';
    const headers = ['X-API-KEY: key-1'];
    const client = rawClient(Number(port), rawMessage({ path, body: JSON.stringify(HELLO), headers }));
    await client.waitFor('" that."');
    const exited = once(running, 'exit');
    running.kill('SIGKILL');
    await exited;
    const now = await start({ speed: { wordMs: 0, silenceMs: 0 } });
    await rest(now);
    expect(wholeMessages(await now.say(HELLO, 'slow'))).toHaveLength(1);
    const types = ['message.user', 'run.error', 'message.user', 'message.complete', 'run.done'];
    expect(typesOf(await now.history({ bot: 'slow' }))).toEqual(types);
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

describe('a kept conversation', () => {
  test('is kept for as many days as are set, since it was last used', async () => {
    file = settingsFile();
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
    expect(await metadata(again, { id: 'old' })).toBe('404 CHANNEL_NOT_FOUND');
    expect(await metadata(again, { id: 'new' })).toMatchObject({ title: 'hello' });
    for (const [table, rows] of Object.entries({ files: 0, runs: 1, kept: 2 }))
      expect([table, sql.get(`SELECT count(*) AS n FROM ${table}`)?.n]).toEqual([table, rows]);
  });

  /** Conversations of two projects, in memory. */
  function inMemory() {
    const database = openDatabase();
    for (const id of ['p', 'q'])
      database.run('INSERT INTO projects (id, name, created_at) VALUES (?, ?, 0)', id, id);
    const gone: number[] = [];
    const all = openChannels(database, { keepDays: 1, isFile: false, onGone: (key) => void gone.push(key) });
    const close = () => {
      all.close();
      database.close();
    };
    return { ...all, gone, close };
  }
  const at = (projectId: string, bot = 'echo') => ({ projectId, endpoint: `demo/${bot}` });

  test('is forgotten by a service that runs on, within an hour', () => {
    jest.useFakeTimers();
    const { findOrMake, makeNameless, findNameless, gone, close } = inMemory();
    const { key } = findOrMake(at('p'), 'c1');
    jest.advanceTimersByTime(DAY_MS - 1);
    expect(gone).toEqual([]);
    jest.advanceTimersByTime(60 * 60 * 1000 + 1);
    expect(gone).toEqual([key]);
    const nameless = makeNameless('r');
    expect(findNameless('r')?.key).toBe(nameless.key);
    jest.advanceTimersByTime(10 * 60 * 1000 + 1);
    expect(findNameless('r')).toBeUndefined();
    close();
  });

  test('is found by the bot and the project in which it was made, and by no other', () => {
    const { findOrMake, find, deleteOf, close } = inMemory();
    const { key } = findOrMake(at('p'), 'c1');
    expect(find(at('p'), 'c1')?.key).toBe(key);
    for (const other of [at('q'), at('p', 'guide')]) expect(find(other, 'c1')).toBeUndefined();
    deleteOf('p', 'demo', 'ech');
    deleteOf('p', 'dem');
    expect(find(at('p'), 'c1')?.key).toBe(key);
    deleteOf('p', 'demo', 'echo');
    // Nobody ever gets its number again.
    expect(findOrMake(at('p'), 'c1').key).toBeGreaterThan(key);
    close();
  });

  test('goes with its namespace or project, and then its run ends', async () => {
    file = settingsFile();
    const { settings, say, port } = await start();
    await say(HELLO);
    const other = settings.createProject('Other').id;
    const key = settings.createKey(other, 'k').open();
    const sql = file.tables();
    const rows = () => sql.get('SELECT count(*) AS n FROM channels')?.n;
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
});
