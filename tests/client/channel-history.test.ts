import type { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import type { Channel, ChannelMessage, ChannelOptions } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import {
  type AnswerView,
  type FollowedHistory,
  followHistory,
} from '../../src/client/channel/follow-history.ts';
import { resumedAnswers } from '../../src/client/channel/resumed-answers.ts';
import type { BotClient, BotEvent } from '../../src/client/session/bot-client.ts';
import {
  allOf,
  type ChannelStage,
  endSession,
  isLoaded,
  isOf,
  isReady,
  refuseUnhandledRejections,
  startDemoStage,
  startHistory,
  startRunsStage,
  USER,
} from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore, startCuttingFront } from '../harness/faults/cutting-front.ts';
import { deltaOf, typeOf } from '../harness/service/bot-runs.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

refuseUnhandledRejections();

/** Relays whose bot service has histories, and has none. */
let stage: ChannelStage;
let bare: ChannelStage;
beforeAll(async () => {
  const limits = { BOTS: 'demo/*', MAX_BODY_BYTES: '10000', JOIN_GRACE_MS: '600000' };
  stage = await startDemoStage('echo', { ...limits, OPERATIONS: 'message,chat,files' });
  bare = await startDemoStage('echo', { ...limits, OPERATIONS: 'message' });
});
afterAll(async () => {
  await stage.close();
  await bare.close();
});
const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
  for (const one of [stage, bare]) one.leave();
});

/** The conversation of each test is another one. */
let ID: { readonly id: string };
let count = 0;
beforeEach(() => {
  ID = { id: `conversation-${++count}` };
});

/** What the page keeps instead of the bot service. */
function pageHistory(kept: readonly ChannelMessage[] = []) {
  let messages = kept;
  const save = async (all: readonly ChannelMessage[]) => {
    messages = all;
  };
  const history = { load: async () => messages, save, clear: () => save([]) };
  return { history, messages: () => messages };
}
/** An event of a run. */
const eventOf = (fact: object, id?: number) =>
  `${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify({ eventType: typeOf(fact), requestId: 'A', fact })}\n\n`;

describe('with the history of the bot service', () => {
  const tools = { botProviderName: 'tools' };

  test('a channel shows what was said before, and takes the next message', async () => {
    const first = await stage.channel(ID, tools);
    await first.send('Hello');
    await isReady(first);
    const again = await stage.channel(ID, tools);
    await isLoaded(again);
    expect(allOf(again)).toEqual(allOf(first));
    const call = again.getSnapshot().messages[1]?.parts.find(({ type }) => type === 'dynamic-tool');
    expect(call).toMatchObject({ state: 'approval-requested', toolName: expect.any(String) });
    await again.send('Next');
    await isReady(again);
    expect(allOf(again)).toHaveLength(4);
    expect(allOf(again).slice(0, 2)).toEqual(allOf(first));
  });

  test('a tool call that waits is a part, and consent answers it', async () => {
    const channel = await stage.channel({}, tools);
    const answer = await channel.send('Hello');
    const call = answer?.parts.find((part) => part.type === 'dynamic-tool');
    expect(call).toMatchObject({ state: 'approval-requested' });
    const reply = await channel.consent(`${call?.toolCallId}`, true);
    expect(reply?.state).toBe('done');
    expect(reply?.parts).toContainEqual(
      expect.objectContaining({ type: 'dynamic-tool', state: 'output-available' }),
    );
    await isReady(channel);
    const approval = { id: call?.toolCallId, approved: true };
    expect(channel.getSnapshot().messages[1]?.parts).toContainEqual(
      expect.objectContaining({ state: 'approval-responded', approval }),
    );
    expect(await channel.consent(`${call?.toolCallId}`, true)).toBeUndefined();
  });

  test('files are uploaded and sent, and what the user thinks is shown', async () => {
    const channel = await stage.channel();
    const parts: number[] = [];
    const file = await channel.upload(new File(['text'], 'a.txt', { type: 'text/plain' }), {
      onProgress: (part) => parts.push(part),
    });
    expect(file).toMatchObject({ type: 'file', filename: 'a.txt', blobId: expect.any(String) });
    expect(parts.at(-1)).toBe(1);
    const answer = await channel.send({ text: 'See', files: file ? [file] : [] });
    expect(answer?.state).toBe('done');
    expect(channel.getSnapshot().messages[0]?.parts).toEqual([{ type: 'text', text: 'See' }, file]);
    expect(await channel.feedback(`${answer?.id}`, 'GOOD')).toBe(true);
    await until(() => channel.getSnapshot().messages[1]?.metadata.verdict === 'GOOD');
  });

  test('reset forgets all, here and at the bot service', async () => {
    const channel = await stage.channel(ID);
    await channel.send('Hello');
    expect(await channel.reset()).toBe(true);
    await until(() => allOf(channel).length === 0);
    const again = await stage.channel(ID);
    await isLoaded(again);
    expect(allOf(again)).toEqual([]);
  });
});

test('without it, a channel shows what the page has kept, and has it keep more', async () => {
  const { history, messages } = pageHistory();
  const first = await bare.channel({ ...ID, messages: history });
  await first.send('Hello');
  await until(() => messages().length === 2);
  const again = await bare.channel({ ...ID, messages: history });
  await isLoaded(again);
  expect(allOf(again)).toEqual(['user: Hello', 'bot: You said: Hello']);
  await again.send('Next');
  await until(() => messages().length === 4);
  await again.reset();
  await until(() => again.getSnapshot().error?.code === 'operation_not_enabled');
});

const failed = (channel: Channel) => channel.getSnapshot().failedHistory;

describe('a history that failed before a message was answered', () => {
  const TURN = ['user: Important', 'bot: You said: Important'];
  const LARGE = 'large '.repeat(2_000).trim();
  const REFUSED = [`user: ${LARGE}`, 'bot:  (error)'];
  /** Everything is shown, and nothing is under way. */
  const isAtRest = (channel: Channel) =>
    until(() => ['ready', 'error'].includes(channel.getSnapshot().status));

  /** A channel whose history has failed before a message was sent and answered, until `comeBack` is called. */
  async function answered(at = stage, options: ChannelOptions = {}) {
    let isAway = true;
    const own: typeof fetch = async (url, init) => {
      if (isAway && String(url).includes('/channel/metadata')) throw new TypeError('away');
      return fetch(url, init);
    };
    const client = await at.signedIn({ fetch: own });
    const channel = createChannel(client, { ...ID, ...options });
    closers.push(channel.subscribe(() => {}));
    await until(() => failed(channel)?.error.code === 'unreachable');
    expect(channel.getSnapshot().error).toBe(failed(channel)?.error);
    await channel.send('Important');
    await until(() => allOf(channel).length === 2);
    const comeBack = () => {
      isAway = false;
    };
    /** Loads the history, and resolves when it has taken the place of what was shown. */
    async function loadAgain(): Promise<void> {
      comeBack();
      const [first] = channel.getSnapshot().messages;
      failed(channel)?.loadAgain();
      await until(() => channel.getSnapshot().messages[0]?.id !== first?.id);
      await isLoaded(channel);
    }
    return { channel, client, comeBack, loadAgain };
  }

  test('leaves the message where it is when the bot service has no history', async () => {
    const { channel, comeBack } = await answered(bare);
    comeBack();
    failed(channel)?.loadAgain();
    await until(() => failed(channel) === undefined);
    await isLoaded(channel);
    expect(allOf(channel)).toEqual(TURN);
  });

  test('leaves the message where it is while the relay is away, and is offered again', async () => {
    const { channel } = await answered(bare);
    const before = failed(channel);
    before?.loadAgain();
    await until(() => failed(channel) !== undefined && failed(channel) !== before);
    expect(failed(channel)?.error.code).toBe('unreachable');
    expect(allOf(channel)).toEqual(TURN);
  });

  test('is not loaded while an answer is under way, and takes the place of what has come by then', async () => {
    const { channel, loadAgain, comeBack } = await answered();
    comeBack();
    const sent = channel.send('Again');
    await until(() => channel.getSnapshot().error === undefined);
    failed(channel)?.loadAgain();
    await sent;
    await isReady(channel);
    expect(failed(channel)).toBeDefined();
    await loadAgain();
    expect(allOf(channel)).toEqual([...TURN, 'user: Again', 'bot: You said: Again']);
    expect(failed(channel)).toBeUndefined();
  });

  test('takes the place of the message, since it has that, but of none that is sent meanwhile', async () => {
    const { channel, comeBack } = await answered();
    comeBack();
    const ids = channel.getSnapshot().messages.map(({ id }) => id);
    failed(channel)?.loadAgain();
    await channel.send('Next');
    await until(() => allOf(channel)[3]?.endsWith('Next') === true);
    expect(allOf(channel)).toEqual([...TURN, 'user: Next', 'bot: You said: Next']);
    expect(ids).not.toContain(channel.getSnapshot().messages[0]?.id);
  });

  test('leaves a message that was refused since the session had ended, which it does not have', async () => {
    const { channel, loadAgain, client } = await answered();
    await endSession(stage.relay);
    await channel.send('Refused');
    await client.signIn(USER.name, USER.password);
    await loadAgain();
    expect(allOf(channel)).toEqual([...TURN, 'user: Refused', 'bot:  (error)']);
  });

  test('leaves each message that the relay refused where it was, with its state', async () => {
    const { channel, loadAgain } = await answered();
    for (const text of [LARGE, 'Next', LARGE]) await channel.send(text);
    const all = [...TURN, ...REFUSED, 'user: Next', 'bot: You said: Next', ...REFUSED];
    await isAtRest(channel);
    expect(allOf(channel)).toEqual(all);
    const before = channel.getSnapshot().messages;
    expect(before[3]?.error).toMatchObject({ code: 'body_too_large', retryable: false });
    await loadAgain();
    expect(allOf(channel)).toEqual(all);
    const isSame = channel.getSnapshot().messages.map((one, at) => one === before[at]);
    expect(isSame).toEqual([false, false, true, true, false, false, true, true]);
  });

  test('leaves a message that the relay refused above the question after it, though that was asked before', async () => {
    const { channel, loadAgain } = await answered();
    for (const text of [LARGE, 'Important']) await channel.send(text);
    const all = [...TURN, ...REFUSED, ...TURN];
    await isAtRest(channel);
    expect(allOf(channel)).toEqual(all);
    await loadAgain();
    expect(allOf(channel)).toEqual(all);
  });

  test('takes the place of a message whose answer the end of the session has cut', async () => {
    const { channel, loadAgain, client } = await answered();
    const long = 'word '.repeat(100).trim();
    const sent = channel.send(long);
    await until(() => allOf(channel).at(-1)?.startsWith('bot: You said: word') === true);
    await endSession(stage.relay);
    expect((await sent)?.error).toMatchObject({ code: 'session_ended', maybeStarted: true });
    await client.signIn(USER.name, USER.password);
    await loadAgain();
    expect(allOf(channel).filter((line) => line === `user: ${long}`)).toHaveLength(1);
  });

  test('is put before the message where the page keeps it, and the page keeps both', async () => {
    const old = { id: 'old', role: 'user', state: 'done', metadata: {} } as const;
    const { history, messages } = pageHistory([{ ...old, parts: [{ type: 'text', text: 'Before' }] }]);
    const { channel, comeBack } = await answered(bare, { messages: history });
    expect(messages()).toHaveLength(1);
    comeBack();
    failed(channel)?.loadAgain();
    await until(() => allOf(channel).length === 3);
    expect(allOf(channel)).toEqual(['user: Before', ...TURN]);
    const again = await bare.channel({ ...ID, messages: history });
    await isLoaded(again);
    expect(allOf(again)).toEqual(['user: Before', ...TURN]);
  });
});

/** A bot service whose live histories say `Hello` and do not end. */
async function liveHistory() {
  const live = new Set<Socket>();
  const service = {
    live,
    /** How many live streams were opened so far. */
    opened: 0,
    /** Whether a run is under way, which says a word again and again. */
    isRunning: false,
    messages: 0,
    suspends: 0,
  };
  const { relay, close } = await startHistory(
    (socket, { requestLine }) => {
      if (requestLine.includes('/suspend')) {
        service.suspends += 1;
        return void socket.write(jsonAnswer('200 OK', {}));
      }
      socket.write(STREAM_HEAD);
      if (requestLine.startsWith('POST')) {
        service.messages += 1;
        return void socket.write(Buffer.concat([chunk(eventOf({ runDone: {} })), Buffer.from(LAST_CHUNK)]));
      }
      service.opened += 1;
      live.add(socket);
      socket.write(chunk(`retry: 1\n${eventOf({ messageUser: { text: 'Hello' } }, 1)}`));
      const word = () => service.isRunning && socket.write(chunk(eventOf(deltaOf('word '))));
      const words = setInterval(word, 50);
      socket.on('close', () => {
        clearInterval(words);
        live.delete(socket);
      });
    },
    { OPERATIONS: 'message,chat' },
  );
  const clients: BotClient[] = [];
  /** A page that shows the conversation. Its session is known when `release` was called. */
  async function signedInPage(options: ChannelOptions = {}) {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const client = testClient({
      ...{ baseUrl: relay.url, namespace: 'acme', botProviderName: 'helper' },
      async fetch(url, init) {
        if (String(url).endsWith('/auth/session')) await released;
        return fetch(url, init);
      },
    });
    clients.push(client);
    await client.signIn(USER.name, USER.password);
    const channel = createChannel(client, { id: 'c', ...options });
    return { channel, client, release };
  }
  return {
    service,
    relay,
    signedInPage,
    async close() {
      // A page that is left follows a run until its end.
      for (const client of clients) await client.signOut().catch(() => {});
      await close();
    },
  };
}

describe('a conversation whose history goes on', () => {
  let on: Awaited<ReturnType<typeof liveHistory>>;
  beforeEach(async () => {
    on = await liveHistory();
    closers.push(on.close);
  });
  /** A page that shows it. */
  async function shown(options: ChannelOptions = {}) {
    const page = await on.signedInPage(options);
    page.release();
    return { ...page, leave: page.channel.subscribe(() => {}) };
  }

  test('is not followed by a channel that is dropped before its session is known', async () => {
    const dropped = await on.signedInPage({ expert: { gcMs: 0 } });
    dropped.channel.subscribe(() => {})();
    // The timer that drops it was set before this one.
    await new Promise((resolve) => setTimeout(resolve, 0));
    dropped.release();
    // The stream of a page that is shown comes after one of the page that was dropped.
    const { channel, leave } = await shown({ expert: { gcMs: 0 } });
    await until(() => allOf(channel).length === 1);
    expect(allOf(dropped.channel)).toEqual([]);
    expect(on.service.opened).toBe(1);
    leave();
    await until(() => on.service.live.size === 0);
  });

  test('is followed again by a channel that is dropped and shown again, which shows each message once', async () => {
    const { service } = on;
    const { channel, release } = await on.signedInPage({ expert: { gcMs: 0 } });
    release();
    for (const times of [1, 2]) {
      const leave = channel.subscribe(() => {});
      await until(() => service.opened === times);
      await until(() => allOf(channel).length === 1);
      leave();
      await until(() => service.live.size === 0);
    }
    const leave = channel.subscribe(() => {});
    await until(() => service.opened === 3 && allOf(channel).length === 1);
    for (const socket of service.live) socket.write(chunk(eventOf({ messageUser: { text: 'Bye' } }, 2)));
    await until(() => allOf(channel).includes('user: Bye'));
    expect(allOf(channel)).toEqual(['user: Hello', 'user: Bye']);
    leave();
    await until(() => service.live.size === 0);
  });

  test('has a message wait while a run streams, which is not sent after a stop, and the stop stops the run', async () => {
    on.service.isRunning = true;
    const { channel, leave } = await shown({ whileBusy: 'queue' });
    await until(() => channel.getSnapshot().status === 'streaming');
    const sent = channel.send('Again');
    await channel.stop();
    expect(await sent).toBeUndefined();
    await until(() => on.service.suspends === 1);
    await isReady(channel);
    await channel.send('Last');
    expect(on.service.messages).toBe(1);
    leave();
  });

  test('has a message refused as busy while a run streams that was begun before', async () => {
    on.service.isRunning = true;
    const { channel, leave } = await shown();
    await until(() => channel.getSnapshot().status === 'streaming');
    expect(await channel.send('Hello')).toBeUndefined();
    await until(() => channel.getSnapshot().error?.code === 'busy');
    expect([on.service.messages, channel.getSnapshot().status]).toEqual([0, 'streaming']);
    leave();
  });

  test('ends with the session without a failure, and begins again when the same user is back', async () => {
    const { service, relay } = on;
    const errors: string[] = [];
    const { channel, client, leave } = await shown({ onError: ({ code }) => errors.push(code) });
    await until(() => allOf(channel).length === 1);
    await isLoaded(channel);
    await endSession(relay);
    for (const socket of service.live) socket.destroy();
    await isOf(channel, null);
    expect(allOf(channel)).toEqual(['user: Hello']);
    const before = service.opened;
    await client.signIn(USER.name, USER.password);
    await until(() => service.opened > before);
    await isLoaded(channel);
    expect(allOf(channel)).toEqual(['user: Hello']);
    expect([failed(channel), channel.getSnapshot().error, errors]).toEqual([undefined, undefined, []]);
    leave();
  });

  test('ends with its connection as an error, and nothing is missing', async () => {
    const errors: string[] = [];
    const { channel, leave } = await shown({ onError: ({ code }) => errors.push(code) });
    await until(() => allOf(channel).length === 1);
    await isLoaded(channel);
    await on.relay.close();
    await until(() => errors.length > 0);
    expect(failed(channel)).toBeUndefined();
    expect(allOf(channel)).toEqual(['user: Hello']);
    leave();
  });
});

const OFTEN = Array.from({ length: 200 }, () => 100);

describe('a history is complete', () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());
  test.each<[string, readonly number[], (at: number) => string | undefined, number]>([
    ['0.5 s after the last event that is kept', OFTEN.slice(0, 10), () => 'id', 1_500],
    ['0.5 s after the first event of a run that goes on', OFTEN, () => undefined, 600],
    ['0.5 s after that, behind what is kept', OFTEN, (at) => (at < 10 ? 'id' : undefined), 1_600],
    ['after 5 s though events that are kept go on', OFTEN, () => 'id', 5_000],
    ['after 5 s without an event', [], () => 'id', 5_000],
  ])('%s', async (_, waits, id, ms) => {
    async function* history(): AsyncGenerator<BotEvent, void, void> {
      for (const [at, wait] of waits.entries()) {
        await new Promise((resolve) => setTimeout(resolve, wait));
        yield { known: false, eventType: 'word', id: id(at), runId: 'A', raw: undefined };
      }
      await new Promise(() => {});
    }
    const onAnswer = () => ({ onEvent() {}, onState() {}, onVerdict() {}, onError() {} });
    const view = { onQuestion() {}, onAnswer, onError() {} };
    const began = Date.now();
    let after: number | undefined;
    followHistory({ metadata: async () => ({}), history }, view).settled.then(() => {
      after = Date.now() - began;
    });
    for (let passed = 0; passed < 8_000 && after === undefined; passed += 50)
      await jest.advanceTimersByTimeAsync(50);
    expect(after).toBe(ms);
  });
});

describe('an answer that had not ended before a reload', () => {
  /** A page whose tab has this store; nothing of it goes on after the test. */
  async function page(store: ReturnType<typeof memoryStore>['store']) {
    const client = await stage.signedIn({ ids: store });
    const channel = createChannel(client, ID);
    const leave = channel.subscribe(() => {});
    closers.push(async () => {
      leave();
      await client.signOut();
    });
    return channel;
  }
  /** A page whose answer has begun. */
  async function begun(words: string) {
    const { store } = memoryStore();
    const channel = await page(store);
    void channel.send(words);
    await until(() => allOf(channel)[1]?.startsWith('bot: You said: word') === true);
    return { channel, store };
  }

  test('goes on below its question, and each is shown once', async () => {
    const words = 'word '.repeat(50).trim();
    const joined = () => stage.relay.logs.filter(({ msg }) => msg === 'run joined').length;
    const before = joined();
    const { channel: first, store } = await begun(words);
    const second = await page(store);
    const whole = [`user: ${words}`, `bot: You said: ${words}`];
    await until(() => allOf(second).some((line) => line === whole[1]) && allOf(second).length > 1);
    expect(allOf(second)).toEqual(whole);
    expect(joined()).toBe(before + 1);
    await until(() => allOf(first)[1] === whole[1]);
  });

  test('is stopped with its run', async () => {
    // It must go on until the second page has signed in.
    const { store } = await begun('word '.repeat(1_000));
    const second = await page(store);
    await until(() => second.getSnapshot().status === 'streaming');
    void second.stop();
    await until(() => allOf(second).some((line) => line.endsWith('(stopped)')));
    const { metadata } = botConversation(await stage.signedIn(), ID.id);
    while ((await metadata())?.runState !== 'IDLE');
    expect(second.getSnapshot().error).toBeUndefined();
  });

  test('goes on after a break of its connection, too, and is one run', async () => {
    const front = await startCuttingFront({ OPERATIONS: 'message' });
    closers.push(front.close);
    const { store } = memoryStore();
    const page = async () => {
      const client = front.newClient({ ids: store });
      await client.signIn(USER.name, USER.password);
      const channel = createChannel(client);
      closers.unshift(channel.subscribe(() => {}));
      return channel;
    };
    const first = await page();
    void first.send('Hello');
    await until(() => front.upstream.requests.length > 0);
    front.emit(eventOf(deltaOf('You')));
    await until(() => allOf(first).at(-1) === 'bot: You (streaming)');
    front.cut();
    await until(() => first.getSnapshot().status === 'reconnecting');
    await until(() => first.getSnapshot().status === 'streaming');
    const second = await page();
    await until(() => allOf(second).at(-1) === 'bot: You (streaming)');
    front.emit(eventOf(deltaOf(' said')));
    front.finish();
    for (const one of [first, second]) await until(() => allOf(one).at(-1) === 'bot: You said');
    expect(front.upstream.requests).toHaveLength(1);
  });

  test('stands above what was sent meanwhile', async () => {
    const runs = await startRunsStage({ OPERATIONS: 'message,chat', JOIN_GRACE_MS: '60000' });
    closers.push(runs.close.bind(runs));
    const { store } = memoryStore();
    const first = await runs.channel(ID, { ids: store });
    void first.send('one');
    const run = await runs.bot.run('one');
    run.begin();
    run.write(eventOf(deltaOf('1')));
    await until(() => allOf(first).includes('bot: 1 (streaming)'));
    const calls = heldCalls();
    const goOn = calls.hold('message/run');
    const again = await runs.channel(ID, { ids: store, fetch: calls.fetch });
    void again.send('two');
    await until(() => allOf(again).includes('user: two'));
    goOn();
    await until(() => allOf(again).length === 3);
    expect(allOf(again).map((line) => line.slice(0, 9))).toEqual(['bot: 1 (s', 'user: two', 'bot:  (su']);
  });

  async function* noText(): AsyncGenerator<string> {}
  const WHOLE = ['streaming', 'event', 'event', 'closed', 'done'];
  test.each([
    ['is shown if no history is', undefined, undefined, WHOLE],
    ['is shown if its history does not show it', 'A', ['B'], WHOLE],
    ['is left to a history that shows its run already', 'A', ['A'], ['closed']],
    ['is left to the history if it names no run', undefined, [], ['closed']],
  ])('%s', async (_, runId, shows, expected) => {
    const events: string[] = [];
    async function* stream(): AsyncGenerator<BotEvent> {
      try {
        const event = { known: false, eventType: 'word', runId, id: undefined, raw: undefined } as const;
        yield* [event, event];
      } finally {
        events.push('closed');
      }
    }
    const view: AnswerView = {
      onEvent: () => events.push('event'),
      onState: (state) => events.push(state),
      onVerdict: () => {},
      onError: (error) => events.push(String(error)),
    };
    const info = { state: 'waiting' as const, requestId: undefined, text: noText() };
    const history = shows && ({ shows: (one) => shows.some((it) => it === one) } as Partial<FollowedHistory>);
    const { begun } = resumedAnswers(
      { resume: () => [Object.assign(stream(), info)] },
      {
        onAnswer: () => view,
        onError: (error) => events.push(String(error)),
        history: () => history as FollowedHistory | undefined,
      },
    );
    await begun;
    await until(() => events.length === expected.length);
    expect(events).toEqual(expected);
  });

  test('is looked for before the history is asked for', async () => {
    let asked = 0;
    const { promise: begun, resolve: known } = Promise.withResolvers<void>();
    async function* history(): AsyncGenerator<BotEvent> {}
    const metadata = async () => {
      asked += 1;
      return undefined;
    };
    const onAnswer = () => ({ onEvent() {}, onState() {}, onVerdict() {}, onError() {} });
    const view = { onQuestion() {}, onAnswer, onError() {}, resumed: { begun, shows: () => false } };
    const { settled } = followHistory({ metadata, history }, view);
    await new Promise((resolve) => setImmediate(resolve));
    expect(asked).toBe(0);
    known();
    await settled;
    expect(asked).toBe(1);
  });
});
