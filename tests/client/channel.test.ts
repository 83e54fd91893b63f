import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { oncePerFrame } from '../../src/client/channel/channel-state.ts';
import { suspension } from '../../src/client/channel/channel-stop.ts';
import type { Channel, ChannelMessage } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { internalsOf } from '../../src/client/session/client-internals.ts';
import { followedSession, sessionActions } from '../../src/client/session/followed-session.ts';
import { RelayError } from '../../src/client/transport/relay-error.ts';
import {
  aChannelWasDropped,
  allOf,
  endSession,
  isLoaded,
  isOf,
  isReady,
  refuseUnhandledRejections,
  startRunsStage,
  USER,
} from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';
import { deltaOf } from '../harness/service/bot-runs.ts';

refuseUnhandledRejections();

const BOT = { namespace: 'acme', botProviderName: 'helper' };
let stage: Awaited<ReturnType<typeof startRunsStage>>;
beforeAll(async () => {
  stage = await startRunsStage({ OPERATIONS: 'message,chat', JOIN_GRACE_MS: '200' });
});
beforeEach(() => stage.bot.forget());
afterEach(() => {
  stage.leave();
  Reflect.deleteProperty(globalThis, 'reportError');
});
afterAll(() => stage.close());

const status = (channel: Channel) => channel.getSnapshot().status;
const texts = () => stage.bot.runs.map(({ text }) => text);
/** Sends a message whose answer is one word. */
async function turn(channel: Channel, text: string, word = 'You') {
  const sent = channel.send(text);
  (await stage.bot.run(text)).answer(word);
  return sent;
}

describe('a channel', () => {
  test('is the same for the same client and id, and another for another one', async () => {
    const client = await stage.signedIn();
    expect(createChannel(client, { id: 'one' })).toBe(createChannel(client, { id: 'one' }));
    expect(createChannel(client, { id: 'one' })).not.toBe(createChannel(client, { id: 'two' }));
    expect(createChannel(client)).toBe(createChannel(client));
    expect(createChannel(client)).not.toBe(createChannel(await stage.signedIn()));
  });

  test('shows a message at once, and its answer as it arrives', async () => {
    const channel = await stage.channel();
    const sent = channel.send('Hello');
    await until(() => status(channel) === 'submitted');
    expect(allOf(channel)).toEqual(['user: Hello', 'bot:  (submitted)']);
    const run = await stage.bot.run('Hello');
    run.begin();
    run.say('You', ' said');
    await until(() => allOf(channel)[1] === 'bot: You said (streaming)');
    expect(status(channel)).toBe('streaming');
    run.finish();
    expect(await sent).toMatchObject({ state: 'done', metadata: { requestId: expect.any(String) } });
    await isReady(channel);
    expect(allOf(channel)).toEqual(['user: Hello', 'bot: You said']);
  });

  test('stops no run when nobody listens any more', async () => {
    const channel = createChannel(await stage.signedIn());
    const leave = channel.subscribe(() => {});
    const sent = channel.send('Hello');
    const run = await stage.bot.run('Hello');
    run.begin();
    leave();
    // A stop would have been sent before these.
    await stage.signedIn();
    run.say('You');
    run.finish();
    expect(await sent).toMatchObject({ state: 'done', parts: [{ type: 'text', text: 'You' }] });
  });

  test('refuses a message as busy while an answer is under way', async () => {
    const channel = await stage.channel();
    const sent = channel.send('one');
    const one = await stage.bot.run('one');
    expect(await channel.send('two')).toBeUndefined();
    await until(() => channel.getSnapshot().error?.code === 'busy');
    expect(status(channel)).toBe('submitted');
    one.answer('1');
    await sent;
    expect(texts()).toEqual(['one']);
  });

  test('has messages wait for the end of an answer with whileBusy queue, one after the other', async () => {
    const channel = await stage.channel({ whileBusy: 'queue' });
    const all = ['one', 'two', 'three'].map((text) => channel.send(text));
    const one = await stage.bot.run('one');
    await until(() => allOf(channel).includes('user: two (queued)'));
    expect(texts()).toEqual(['one']);
    one.answer('1');
    (await stage.bot.run('two')).answer('2');
    (await stage.bot.run('three')).answer('3');
    await Promise.all(all);
    await isReady(channel);
    expect(texts()).toEqual(['one', 'two', 'three']);
    expect(allOf(channel)).toEqual([
      ...['user: one', 'bot: 1', 'user: two', 'bot: 2', 'user: three', 'bot: 3'],
    ]);
  });

  test('sends the message of a failed answer once more by regenerate, as a new message at the end', async () => {
    const channel = await stage.channel();
    const first = channel.send('one');
    const run = await stage.bot.run('one');
    run.begin();
    run.send({ runError: { error: { message: 'Too many steps.', code: 'STEPS' } } });
    run.finish();
    const failed = await first;
    expect(failed).toMatchObject({ state: 'error', error: { code: 'STEPS' } });
    await until(() => status(channel) === 'error');
    stage.bot.forget();
    const again = channel.regenerate(failed?.id);
    (await stage.bot.run('one')).answer('1');
    await again;
    await isReady(channel);
    expect(allOf(channel)).toEqual(['user: one', 'bot:  (error)', 'user: one', 'bot: 1']);
  });

  test('keeps the identity of a message until that changes', async () => {
    const channel = await stage.channel();
    await turn(channel, 'one');
    await isReady(channel);
    const before = channel.getSnapshot().messages;
    const second = channel.send('two');
    const run = await stage.bot.run('two');
    run.begin();
    run.send(deltaOf('2'));
    await until(() => allOf(channel).includes('bot: 2 (streaming)'));
    const now = channel.getSnapshot().messages;
    expect(now[0]).toBe(before[0]);
    expect(now[1]).toBe(before[1]);
    run.finish();
    await second;
    expect(before).toHaveLength(2);
  });

  test('has an error for a message that cannot be sent, also when it is sent again', async () => {
    const channel = await stage.channel();
    // A page without TypeScript can pass it, as for an upload that has failed.
    expect(await channel.send({ files: [undefined] as never })).toBeUndefined();
    await until(() => channel.getSnapshot().error?.cause instanceof TypeError);
    const { error } = channel.getSnapshot();
    expect(await channel.regenerate()).toBeUndefined();
    await until(() => channel.getSnapshot().error !== error);
    expect(channel.getSnapshot().error?.cause).toBeInstanceOf(TypeError);
  });

  test('is not harmed by a store with other contents than the client’s', async () => {
    const { kept, store } = memoryStore();
    kept.set('bot-relay-channels', '[1, null, "x"]');
    const channel = await stage.channel({}, { ids: store });
    expect((await turn(channel, 'one'))?.state).toBe('done');
  });
});

describe('a stop', () => {
  /** A channel whose calls can be held, and which has been loaded. */
  async function held() {
    const calls = heldCalls();
    const channel = await stage.channel({ id: 'my-channel' }, { fetch: calls.fetch });
    await isLoaded(channel);
    const suspends = () => calls.called.filter((address) => address.includes('suspend')).length;
    return { ...calls, channel, suspends };
  }

  test('shows the answer as stopped and drops what waits', async () => {
    const channel = await stage.channel({ whileBusy: 'queue' });
    const sent = channel.send('one');
    const waiting = channel.send('two');
    const run = await stage.bot.run('one');
    run.begin();
    run.say('You');
    await until(() => allOf(channel).includes('bot: You (streaming)'));
    await channel.stop();
    await run.gone;
    expect(await sent).toMatchObject({ state: 'stopped' });
    expect(await waiting).toBeUndefined();
    await isReady(channel);
    expect(allOf(channel)).toEqual(['user: one', 'bot: You (stopped)', 'user: two (stopped)']);
    expect(channel.getSnapshot().error).toBeUndefined();
    expect(texts()).toEqual(['one']);
  });

  test('keeps a message that waits for the history from being sent, also while the suspend is slow', async () => {
    const calls = heldCalls();
    const showHistory = calls.hold('channel/metadata');
    const answerSuspend = calls.hold('suspend');
    const channel = await stage.channel({ id: 'my-channel' }, { fetch: calls.fetch });
    const sent = channel.send('one');
    const stopped = channel.stop();
    showHistory();
    expect(await sent).toMatchObject({ state: 'stopped' });
    await isLoaded(channel);
    answerSuspend();
    await stopped;
    await turn(channel, 'two');
    expect(texts()).toEqual(['two']);
  });

  test('also stops a message that was sent while an earlier stop is under way, with one suspend', async () => {
    const { channel, hold, suspends } = await held();
    const one = channel.send('one');
    (await stage.bot.run('one')).begin();
    const answerSuspend = hold('suspend');
    const first = channel.stop();
    const two = channel.send('two');
    await until(() => allOf(channel).length === 4);
    const second = channel.stop();
    expect((await two)?.state).toBe('stopped');
    answerSuspend();
    await Promise.all([first, second]);
    expect((await one)?.state).toBe('stopped');
    await turn(channel, 'three');
    expect(texts()).toEqual(['one', 'three']);
    expect(suspends()).toBe(1);
  });

  test('has the next message wait until its suspend has ended', async () => {
    const { channel, hold } = await held();
    const one = channel.send('one');
    (await stage.bot.run('one')).begin();
    const answerSuspend = hold('suspend');
    const stopped = channel.stop();
    const two = channel.send('two');
    // A turn in another conversation, during which a message that does not wait would have come.
    await turn(await stage.channel({ id: 'other' }), 'other');
    expect(texts()).toEqual(['one', 'other']);
    answerSuspend();
    await stopped;
    expect((await one)?.state).toBe('stopped');
    (await stage.bot.run('two')).answer('2');
    expect((await two)?.state).toBe('done');
  });

  describe('whose suspend', () => {
    const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);
    beforeEach(() => void jest.useFakeTimers());
    afterEach(() => void jest.useRealTimers());
    /** A conversation whose stop is never answered. */
    const silent = {
      stop: ({ signal }: { signal?: AbortSignal | undefined } = {}) =>
        new Promise<boolean>((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason))),
    };
    const started = (of: Parameters<ReturnType<typeof suspension>['stop']>[0]) => {
      const errors: unknown[] = [];
      const its = suspension((error) => errors.push(error));
      let isOver = false;
      void its.stop(of).then(() => {
        isOver = true;
      });
      return { ...its, errors, isOver: () => isOver };
    };

    test('is never answered is over after two seconds, holds the next message for ten, and is an error then', async () => {
      const { isOver, errors, ended } = started(silent);
      let isFree = false;
      void ended()?.then(() => {
        isFree = true;
      });
      await pass(1_999);
      expect(isOver()).toBe(false);
      await pass(1);
      expect(isOver()).toBe(true);
      await pass(7_999);
      expect([isFree, errors]).toEqual([false, []]);
      await pass(1);
      expect([isFree, ended(), errors]).toEqual([true, undefined, [expect.any(RelayError)]]);
      expect(errors).toMatchObject([{ code: 'unreachable', status: 0 }]);
    });

    test('is left is no error', async () => {
      const { leave, errors } = started(silent);
      leave();
      await pass(11_000);
      expect(errors).toEqual([]);
    });

    test('fails with an error of the page tells it', async () => {
      const thrown = new TypeError('a mistake of the page');
      const { errors } = started({ stop: () => Promise.reject(thrown) });
      await pass(0);
      expect(errors).toEqual([thrown]);
    });
  });
});

describe('a function of the page that throws', () => {
  const PAGE_ERROR = new Error('a mistake of the page');
  const fails = () => {
    throw PAGE_ERROR;
  };

  test('stops neither a stop nor what is sent later, and is reported', async () => {
    const reported: unknown[] = [];
    Object.assign(globalThis, { reportError: (error: unknown) => reported.push(error) });
    const channel = await stage.channel({ onEvent: fails, onFinish: fails, onError: fails });
    const one = channel.send('one');
    (await stage.bot.run('one')).begin();
    await channel.stop();
    expect((await one)?.state).toBe('stopped');
    expect((await turn(channel, 'two'))?.state).toBe('done');
    expect(reported).toContain(PAGE_ERROR);
  });

  test('does not keep a sign-out from emptying all channels', async () => {
    Object.assign(globalThis, { reportError: () => {} });
    const client = await stage.signedIn();
    const history = { load: async (): Promise<ChannelMessage[]> => [], save: async () => {}, clear: fails };
    const channels = ['one', 'two'].map((id) =>
      createChannel(client, { id, messages: history, onFinish: fails }),
    );
    for (const channel of channels) channel.subscribe(fails);
    const sent = channels.map((channel) => channel.send('secret'));
    await until(() => stage.bot.runs.length === 2);
    await client.signOut();
    await until(() => channels.every((channel) => channel.getSnapshot().session === null));
    expect(channels.map(allOf)).toEqual([[], []]);
    await Promise.all(sent);
  });
});

test('no function of a channel and of its session rejects', async () => {
  const client = testClient({
    baseUrl: 'http://relay.example.com',
    ...BOT,
    fetch: () => Promise.reject(new TypeError('no network')),
  });
  const channel = createChannel(client);
  const { getSnapshot } = followedSession(client);
  const actions = sessionActions(client);
  expect(await channel.send('Hello')).toMatchObject({ state: 'error', error: { code: 'unreachable' } });
  expect(await channel.upload(new File(['text'], 'a.txt'))).toBeUndefined();
  // A page in JavaScript can pass anything.
  expect(await channel.upload(new File(['text'], 'a.txt'), null as never)).toBeUndefined();
  expect(await channel.send(null as never)).toBeUndefined();
  expect(await channel.feedback('none', 'GOOD')).toBe(false);
  expect(await channel.reset()).toBe(false);
  expect(await channel.consent('none', true)).toBeUndefined();
  expect(await channel.regenerate('none')).toBeUndefined();
  await channel.stop();
  await actions.signIn('ada', 'x');
  expect(getSnapshot().error?.code).toBe('unreachable');
  expect(await actions.signOut()).toEqual({ logoutUrl: null });
  await actions.signInAsGuest();
});

describe('the messages of a channel', () => {
  /** A channel with one answer. */
  async function said() {
    const client = await stage.signedIn();
    const channel = createChannel(client, { id: 'my-channel' });
    channel.subscribe(() => {});
    await turn(channel, 'Hello');
    await until(() => allOf(channel).at(-1) === 'bot: You');
    return { client, channel };
  }

  test('go when the user signs out, also those under way', async () => {
    const { client, channel } = await said();
    const sent = channel.send('More');
    const run = await stage.bot.run('More');
    await client.signOut();
    expect((await sent)?.state).toBe('stopped');
    await isOf(channel, null);
    expect(allOf(channel)).toEqual([]);
    await run.gone;
  });

  test('go also if the streams of the session have told of the sign-out first', async () => {
    const { client, channel } = await said();
    const { tracker } = internalsOf(client);
    const askedIn = tracker.current();
    // What a stream learns when the relay ends it, before the answer to the sign-out is there.
    tracker.learn(false, askedIn);
    tracker.learn(null, askedIn);
    await isOf(channel, null);
    expect(allOf(channel)).toEqual([]);
  });

  test('stay when the same user signs in again after the session has ended', async () => {
    const { client, channel } = await said();
    await endSession(stage.relay);
    const answer = await channel.send('More');
    expect(answer?.error?.code).toBe('unauthenticated');
    await isOf(channel, null);
    await client.signIn(USER.name, USER.password);
    await isOf(channel, USER);
    expect(allOf(channel)).toEqual(['user: Hello', 'bot: You', 'user: More', 'bot:  (error)']);
  });

  test('are refused without a call if nobody is signed in', async () => {
    const answer = await createChannel(testClient({ baseUrl: stage.relay.url, ...BOT })).send('Hello');
    expect(answer).toMatchObject({ state: 'error', error: { code: 'unauthenticated' } });
    expect(texts()).toEqual([]);
  });

  test('are those of one user where the page says so', async () => {
    const client = await stage.signedIn();
    const own = `${(await client.session())?.user.id}`;
    const channels = [own, 'another'].map((user) =>
      createChannel(client, { id: `of ${user}`, expert: { user } }),
    );
    for (const channel of channels) channel.subscribe(() => {});
    await until(() => channels.every((channel) => channel.getSnapshot().session));
    expect(channels.map(({ id }) => id)).toEqual([`of ${own}`, undefined]);
  });

  test('stay while somebody listens, however often another stops', async () => {
    const client = await stage.signedIn();
    const channel = createChannel(client, { expert: { gcMs: 30 } });
    const leave = channel.subscribe(() => {});
    const stay = channel.subscribe(() => {});
    leave();
    leave();
    await aChannelWasDropped(client, 30);
    expect(createChannel(client)).toBe(channel);
    stay();
    await aChannelWasDropped(client, 30);
    expect(createChannel(client)).not.toBe(channel);
  });

  test('go when nobody listens and nothing runs for gcMs', async () => {
    const client = await stage.signedIn();
    const channel = createChannel(client, { expert: { gcMs: 30 } });
    const leave = channel.subscribe(() => {});
    const sent = channel.send('Hello');
    const run = await stage.bot.run('Hello');
    leave();
    await aChannelWasDropped(client, 30);
    expect(createChannel(client)).toBe(channel);
    run.answer('You');
    await sent;
    expect(allOf(channel)).toHaveLength(2);
    await until(() => allOf(channel).length === 0);
    expect(createChannel(client)).not.toBe(channel);
  });
});

test('a channel is kept while a call of it takes longer than gcMs', async () => {
  const calls = heldCalls();
  const client = await stage.signedIn({ fetch: calls.fetch });
  const channel = createChannel(client, { id: 'one', expert: { gcMs: 20 } });
  const release = calls.hold('message/feedback');
  const done = channel.feedback('none', 'GOOD');
  await until(() => calls.called.some((address) => address.includes('message/feedback')));
  await aChannelWasDropped(client, 20);
  expect(createChannel(client, { id: 'one' })).toBe(channel);
  release();
  await done;
  await until(() => createChannel(client, { id: 'one' }) !== channel);
});

describe('a channel that was dropped', () => {
  test('leaves the one in its place alone', async () => {
    const client = await stage.signedIn();
    const old = createChannel(client, { id: 'one', expert: { gcMs: 20 } });
    await until(() => createChannel(client, { id: 'one' }) !== old);
    const next = createChannel(client, { id: 'one' });
    next.subscribe(() => {});
    old.subscribe(() => {})();
    await aChannelWasDropped(client, 20);
    expect(createChannel(client, { id: 'one' })).toBe(next);
  });

  test('and is used again is dropped again', async () => {
    const client = await stage.signedIn();
    const channel = createChannel(client, { id: 'one', expert: { gcMs: 20 } });
    await aChannelWasDropped(client, 20);
    await channel.feedback('none', 'GOOD');
    expect(createChannel(client, { id: 'one' })).toBe(channel);
    expect(channel.id).toBe('one');
    await until(() => channel.id === undefined);
    expect(createChannel(client, { id: 'one' })).not.toBe(channel);
  });
});

test('a process with channels ends when its messages have ended, also while its session goes on', async () => {
  const program = `
    const { createBotClient, createChannel } = await import(process.env.CLIENT);
    const [there, away] = [process.env.RELAY, 'http://127.0.0.1:9'].map((baseUrl) => {
      const client = createBotClient({ expert: { cookies: 'keep' }, baseUrl, bot: 'acme/helper' });
      const channel = createChannel(client);
      channel.subscribe(() => {});
      return { client, channel };
    });
    await new Promise((resolve) => setTimeout(resolve, 1));
    const { user } = await there.client.signIn('${USER.name}', '${USER.password}');
    const answer = await away.channel.send('Hello');
    await away.channel.stop();
    console.log(user.name, answer.error.code);
  `;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    env: {
      CLIENT: fileURLToPath(new URL('../../src/client/index.ts', import.meta.url)),
      RELAY: stage.relay.url,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 15_000,
  });
  const [out, err, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  expect({ out, err, code }).toEqual({ out: `${USER.name} unreachable\n`, err: '', code: 0 });
});

describe('what changes in a channel is drawn', () => {
  const frames = globalThis as {
    requestAnimationFrame?: (act: () => void) => number;
    cancelAnimationFrame?: (frame: number) => void;
  };
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => {
    jest.useRealTimers();
    delete frames.requestAnimationFrame;
    delete frames.cancelAnimationFrame;
  });

  /** Replaces the frames of the browser; the returned function draws one. */
  function framesByHand() {
    const waiting = new Map<number, () => void>();
    let last = 0;
    frames.requestAnimationFrame = (act) => {
      waiting.set(++last, act);
      return last;
    };
    frames.cancelAnimationFrame = (frame) => waiting.delete(frame);
    return () => {
      const due = [...waiting.values()];
      waiting.clear();
      for (const act of due) act();
    };
  }
  /** What is drawn, and how often so far. */
  function drawn() {
    let calls = 0;
    return { ask: oncePerFrame(() => calls++), calls: () => calls };
  }

  test('once in the next frame', () => {
    const frame = framesByHand();
    const { ask, calls } = drawn();
    for (const times of [1, 2]) {
      ask();
      ask();
      expect(calls()).toBe(times - 1);
      frame();
      frame();
      expect(calls()).toBe(times);
    }
  });

  test('after a second if no frame comes, and not again in a late frame', () => {
    const frame = framesByHand();
    const { ask, calls } = drawn();
    ask();
    frame();
    jest.advanceTimersByTime(300);
    ask();
    // The wait for the first frame is over.
    jest.advanceTimersByTime(999);
    expect(calls()).toBe(1);
    jest.advanceTimersByTime(1);
    expect(calls()).toBe(2);
    frame();
    expect(calls()).toBe(2);
  });

  test('in the next task if there are no frames at all', () => {
    const { ask, calls } = drawn();
    ask();
    ask();
    expect(calls()).toBe(0);
    jest.runAllTimers();
    expect(calls()).toBe(1);
  });
});
