import type { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import { textOf } from '../../src/client/channel/channel-state.ts';
import type { ChannelOptions, ChannelSnapshot } from '../../src/client/channel/channel-types.ts';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { openTalk, startHistory } from '../harness/clients/channels.ts';
import { readAll } from '../harness/clients/client-pair.ts';
import { type TestOptions, testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { typeOf } from '../harness/service/bot-runs.ts';
import { HELD, heldEcho } from '../harness/service/held-echo.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const DEMO = { BOTS: 'demo/*' };
const { brain, goOn } = heldEcho();
let service: BotService;
let relay: TestRelay;
beforeAll(async () => {
  service = await startBotService({ keys: [CANARY.key], limit: 1000, brains: { 'demo/echo': brain } });
  relay = await startRelay(service.url, { BOTS: 'demo/*', OPERATIONS: 'message,chat,files' });
});
afterAll(async () => {
  for (const leave of left.splice(0)) leave();
  await relay.close();
  await service.close();
});

const left: (() => void)[] = [];
const newClient = (options: Partial<TestOptions> = {}) =>
  testClient({
    baseUrl: relay.url,
    namespace: 'demo',
    botProviderName: 'echo',
    ...options,
  });

/** An event of the run `requestId`; only what is kept has an id. */
const eventOf = (requestId: string, fact: object, id?: number) =>
  `${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify({ eventType: typeOf(fact), requestId, fact })}\n\n`;

/** A page that shows the channel `id`. */
async function open(id: string, options: Partial<TestOptions> = {}, how: ChannelOptions = {}) {
  const page = await openTalk(newClient(options), { id, ...how });
  left.push(page.leave);
  /** The page shows a change in its next frame. */
  const send = async (...message: Parameters<typeof page.send>) => {
    await page.send(...message);
    await until(() => !['submitted', 'streaming'].includes(page.snapshot().status));
  };
  return { ...page, send };
}
/** Begins a run, which waits in its middle, in another page. */
async function beginRun(customChannelId: string) {
  const client = newClient();
  await client.signIn(USER.name, USER.password);
  const talk = botConversation(client, customChannelId);
  const read = readAll(talk.send(HELD));
  await until(async () => (await talk.metadata())?.runState === 'RUNNING');
  return { ...talk, read };
}
/** The log lines of an operation. */
const asked = (operation: string) =>
  relay.logs.filter(({ route, method }) => method === 'POST' && String(route).endsWith(operation));
const runs = () => asked('/message/sse').length;
/** A page whose history comes after `release`. */
async function openSlowly(customChannelId: string) {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const slow: typeof fetch = async (url, init) => {
    if (String(url).includes('/channel/metadata')) await released;
    return fetch(url, init);
  };
  return { ...(await open(customChannelId, { fetch: slow })), release };
}

const HELLO = ['user done: Hello', 'bot done: You said: Hello'];

describe('a page that shows a conversation with an id', () => {
  test('shows after a reload what was said, and sends nothing for it', async () => {
    const first = await open('reload');
    await first.send('Hello');
    await first.send('Again');
    const before = runs();
    const second = await open('reload');
    await until(() => second.shown().length === 4);
    expect(second.shown()).toEqual([...HELLO, 'user done: Again', 'bot done: You said: Again']);
    expect(second.snapshot()).toMatchObject({ status: 'ready', error: undefined });
    expect(runs()).toBe(before);
  });

  test('shows after a reload when it was said, the names of files, the verdict, and what was stopped', async () => {
    const page = await open('as-before');
    await until(() => !page.snapshot().isLoading);
    const file = await page.upload(new File(['text'], 'note 1.txt', { type: 'text/plain' }));
    await page.send({ text: 'See', files: file ? [file] : [] });
    expect(page.shown()[1]).toBe('bot done: You said: See You sent: note 1.txt');
    await page.feedback(page.snapshot().messages[1]?.id ?? '', 'GOOD');
    await page.feedback(page.snapshot().messages[1]?.id ?? '', 'BAD');
    void page.send(HELD);
    await until(() => textOf(page.snapshot().messages[3] ?? { parts: [] }) === 'You said:');
    await page.stop();
    const finished: string[] = [];
    const again = await open('as-before', {}, { onFinish: ({ id }) => void finished.push(id) });
    await until(() => !again.snapshot().isLoading);
    const about = ({ messages }: ChannelSnapshot) =>
      messages.map(({ state, parts, metadata: { verdict, createdAt = 0 } }) => ({
        ...{ state, verdict, files: parts.filter(({ type }) => type === 'file') },
        isRecent: Math.abs(Date.now() - createdAt) < 60_000,
      }));
    expect(about(again.snapshot())).toEqual(about(page.snapshot()));
    expect(about(again.snapshot())).toMatchObject([
      { state: 'done', files: [{ filename: 'note 1.txt', mediaType: 'text/plain' }] },
      { state: 'done', verdict: 'BAD', isRecent: true },
      { state: 'done', files: [] },
      { state: 'stopped' },
    ]);
    // Nothing of it has ended only now.
    expect(finished).toEqual([]);
  });

  test('shows nothing of another user, with the same id', async () => {
    const page = await open('two-users');
    await page.send('Hello');
    await page.signOut();
    await page.signIn(OTHER_USER.name, OTHER_USER.password);
    await until(() => page.snapshot().session?.user.name === OTHER_USER.name);
    await page.send('Mine');
    await until(() => page.shown()[1] === 'bot done: You said: Mine');
    expect(page.shown()).toEqual(['user done: Mine', 'bot done: You said: Mine']);
    await page.signIn(USER.name, USER.password);
    await until(() => page.shown()[1] === HELLO[1]);
    expect(page.shown()).toEqual(HELLO);
  });

  test('shows a run that is under way to its end, and what is sent meanwhile, each once', async () => {
    const run = await beginRun('under-way');
    const page = await open('under-way', {}, { whileBusy: 'queue' });
    await until(() => page.snapshot().status === 'streaming');
    const sent = page.send('Hello');
    goOn();
    await Promise.all([sent, run.read]);
    await until(() => page.snapshot().status === 'ready');
    expect(page.shown()).toEqual([`user done: ${HELD}`, `bot done: You said: ${HELD}`, ...HELLO]);
  });

  test('stops a run that is under way, and the bot service ends it', async () => {
    const run = await beginRun('stopped');
    const page = await open('stopped');
    await until(() => page.snapshot().status === 'streaming');
    page.stop();
    await until(() => page.snapshot().status === 'ready');
    expect(page.snapshot().messages.at(-1)?.state).toBe('stopped');
    const { events } = await run.read;
    expect(JSON.stringify(events.at(-1)?.raw)).toContain('runDone');
    const whole = JSON.stringify(events.find(({ eventType }) => eventType === 'asgard.message.complete'));
    expect(whole).not.toContain(HELD);
    expect((await run.metadata())?.runState).toBe('IDLE');
  });
});

describe('a message that is sent before what was said is there', () => {
  test('is shown at once, below what was said, and sent afterwards', async () => {
    await (await open('slow')).send('Hello');
    const before = runs();
    const page = await openSlowly('slow');
    const sent = page.send('Again');
    await until(() => page.snapshot().status === 'submitted');
    expect(page.shown()).toEqual(['user done: Again', 'bot submitted: ']);
    page.release();
    await sent;
    expect(page.shown()).toEqual([...HELLO, 'user done: Again', 'bot done: You said: Again']);
    expect(runs()).toBe(before + 1);
  });

  test('is never sent if it is stopped, and what was said is shown', async () => {
    await (await open('slow-stopped')).send('Hello');
    const before = runs();
    const page = await openSlowly('slow-stopped');
    const sent = page.send('Again');
    await until(() => page.snapshot().status === 'submitted');
    page.stop();
    await sent;
    await until(() => page.snapshot().status === 'ready');
    page.release();
    await until(() => page.shown().length === 4);
    expect(page.shown()).toEqual([...HELLO, 'user done: Again', 'bot stopped: ']);
    expect(page.snapshot().error).toBeUndefined();
    expect(runs()).toBe(before);
  });

  test('is never sent in the session of another user', async () => {
    const before = runs();
    const page = await openSlowly('slow-other');
    const sent = page.send('Hello');
    await until(() => page.snapshot().status === 'submitted');
    await page.signIn(OTHER_USER.name, OTHER_USER.password);
    await until(() => page.snapshot().session?.user.name === OTHER_USER.name);
    page.release();
    await sent;
    await page.send('Mine');
    await until(() => page.shown()[1] === 'bot done: You said: Mine');
    expect(page.shown()).toEqual(['user done: Mine', 'bot done: You said: Mine']);
    expect(page.snapshot()).toMatchObject({ status: 'ready', error: undefined });
    await until(() => runs() > before);
    expect(runs()).toBe(before + 1);
  });

  test('is stopped without an error in a conversation that nobody has begun', async () => {
    const before = asked('/message/suspend').length;
    const page = await openSlowly('slow-new');
    const sent = page.send('Hello');
    await until(() => page.snapshot().status === 'submitted');
    page.stop();
    await sent;
    await until(() => asked('/message/suspend').length > before);
    expect(asked('/message/suspend').at(-1)).toMatchObject({ status: 404 });
    page.release();
    await until(() => !page.snapshot().isLoading);
    expect(page.shown()).toEqual(['user done: Hello', 'bot stopped: ']);
    expect(page.snapshot().error).toBeUndefined();
  });
});

test('a bot service that shows each run to all who follow the conversation is not shown twice', async () => {
  let live: Socket | undefined;
  const own = await startHistory((socket, { requestLine }) => {
    socket.write(STREAM_HEAD);
    if (requestLine.startsWith('GET')) {
      live = socket;
      const one = { messageComplete: { message: { messageId: 'A', text: 'One' } } };
      return void socket.write(
        chunk(eventOf('A', { messageUser: { text: 'First' } }, 1) + eventOf('A', one, 2)),
      );
    }
    const two = { messageDelta: { message: { messageId: 'B', text: 'Two' } } };
    const run = eventOf('B', two) + eventOf('B', { runDone: {} });
    live?.write(chunk(run));
    socket.write(Buffer.concat([chunk(run), Buffer.from(LAST_CHUNK)]));
  }, DEMO);
  try {
    const page = await open('shown-to-all', { baseUrl: own.relay.url });
    await until(() => page.shown().length === 2);
    await page.send('Second');
    expect(page.shown()).toEqual(['user done: First', 'bot done: One', 'user done: Second', 'bot done: Two']);
    // Nothing is left that it could follow.
    await until(() => live?.closed === true);
    expect(page.shown()).toHaveLength(4);
  } finally {
    await own.close();
  }
});

const said = (text: string) => ({ messageComplete: { message: { messageId: text, text } } });
const questionOf = (fact: object) => [
  { requestId: '1', fact },
  { requestId: '1', fact: said('A') },
];
interface Past {
  readonly requestId?: string;
  readonly eventType?: string;
  readonly fact: object;
}

describe('a page shows of a history', () => {
  let past: Buffer;
  let own: Awaited<ReturnType<typeof startHistory>>;
  beforeAll(async () => {
    own = await startHistory((socket) => void socket.write(past), DEMO);
  });
  afterEach(() => left.pop()?.());
  afterAll(() => own.close());

  test.each<[string, readonly Past[], readonly string[]]>([
    [
      'the answers of runs without ids, each below its question',
      [
        ...[{ fact: { messageUser: { text: 'One' } } }, { fact: said('1') }],
        ...[{ fact: { messageUser: { text: 'Two' } } }, { fact: said('2') }],
      ],
      ['user done: One', 'bot done: 1', 'user done: Two', 'bot done: 2'],
    ],
    [
      'no feedback, also if it has an id of its own',
      [
        { requestId: 'A', fact: { messageUser: { text: 'One' } } },
        { requestId: 'A', fact: said('1') },
        { requestId: 'F', fact: { messageFeedback: { targetMessageId: '1', verdict: 'GOOD' } } },
        { requestId: 'B', fact: { messageUser: { text: 'Two' } } },
      ],
      ['user done: One', 'bot done: 1', 'user done: Two'],
    ],
    [
      'a question with files of a wrong type',
      questionOf({ messageUser: { text: 'Q?', blobIds: [{ id: 'x' }] } }),
      ['user done: Q?', 'bot done: A'],
    ],
    [
      'a question with a text of a wrong type',
      questionOf({ messageUser: { text: 1 } }),
      ['user done: ', 'bot done: A'],
    ],
    [
      'a question of another shape',
      questionOf({ user: 'Q?' }).map((one, at) => (at ? one : { ...one, eventType: 'asgard.message.user' })),
      ['user done: ', 'bot done: A'],
    ],
    [
      'no answer that begins with an event that is not known, unless the run has failed',
      [
        { requestId: '1', eventType: 'acme.note', fact: {} },
        { requestId: '2', fact: said('A') },
        { requestId: '2', eventType: 'acme.note', fact: {} },
        { requestId: '3', eventType: 'asgard.run.error', fact: {} },
      ],
      ['bot done: A', 'bot done: '],
    ],
  ])('%s', async (_, events, expected) => {
    const history = events.map(
      (event, at) =>
        `id: ${at + 1}\ndata: ${JSON.stringify({ eventType: typeOf(event.fact), ...event })}\n\n`,
    );
    past = wholeStream(history.join(''));
    const page = await open('past', { baseUrl: own.relay.url });
    await until(() => page.shown().length >= expected.length && !page.snapshot().isLoading);
    expect(page.shown()).toEqual(expected);
  });
});
