import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { Channel, ChannelMessage } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import {
  allOf,
  isLoaded,
  isReady,
  refuseUnhandledRejections,
  startRunsStage,
} from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';
import { deltaOf } from '../harness/service/bot-runs.ts';

refuseUnhandledRejections();

const SUSPEND = 'message/suspend';
let stage: Awaited<ReturnType<typeof startRunsStage>>;
beforeEach(async () => {
  stage = await startRunsStage({ OPERATIONS: 'message,chat', JOIN_GRACE_MS: '200' });
});
afterEach(() => stage.close());

const status = (channel: Channel) => channel.getSnapshot().status;

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
});

describe('a message while an answer is under way', () => {
  test('is refused as busy', async () => {
    const channel = await stage.channel();
    const sent = channel.send('one');
    const one = await stage.bot.run('one');
    expect(await channel.send('two')).toBeUndefined();
    await until(() => channel.getSnapshot().error?.code === 'busy');
    expect(status(channel)).toBe('submitted');
    one.answer('1');
    await sent;
    expect(stage.bot.runs).toHaveLength(1);
  });

  test('waits for its end with whileBusy queue, one after the other', async () => {
    const channel = await stage.channel({ whileBusy: 'queue' });
    const all = ['one', 'two', 'three'].map((text) => channel.send(text));
    const one = await stage.bot.run('one');
    await until(() => allOf(channel).includes('user: two (queued)'));
    expect(stage.bot.runs).toHaveLength(1);
    one.answer('1');
    (await stage.bot.run('two')).answer('2');
    (await stage.bot.run('three')).answer('3');
    await Promise.all(all);
    await isReady(channel);
    expect(stage.bot.runs.map(({ text }) => text)).toEqual(['one', 'two', 'three']);
    expect(allOf(channel)).toEqual([
      ...['user: one', 'bot: 1', 'user: two', 'bot: 2', 'user: three', 'bot: 3'],
    ]);
  });
});

describe('a stop', () => {
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
    expect(stage.bot.runs).toHaveLength(1);
  });
});

describe('regenerate', () => {
  test('sends the message of a failed answer once more, as a new message at the end', async () => {
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
});

describe('a message', () => {
  test('keeps its identity until it changes', async () => {
    const channel = await stage.channel();
    const first = channel.send('one');
    (await stage.bot.run('one')).answer('1');
    await first;
    await isReady(channel);
    const [before] = [channel.getSnapshot().messages];
    const second = channel.send('two');
    const run = await stage.bot.run('two');
    run.begin();
    run.send(deltaOf('2'));
    await until(() => allOf(channel).includes('bot: 2 (streaming)'));
    const now = channel.getSnapshot().messages;
    expect([now[0], now[1]]).toEqual([before[0], before[1]]);
    expect(now[0]).toBe(before[0]);
    expect(now[1]).toBe(before[1]);
    run.finish();
    await second;
    expect(before).toHaveLength(2);
  });
});

const texts = () => stage.bot.runs.map(({ text }) => text);

/** A channel whose calls can be held, and which has been loaded. */
async function held() {
  const calls = heldCalls();
  const channel = await stage.channel({ id: 'my-channel' }, { fetch: calls.fetch });
  await isLoaded(channel);
  const suspends = () => calls.called.filter((address) => address.includes(SUSPEND)).length;
  return { ...calls, channel, suspends };
}

describe('a stop', () => {
  test('keeps a message that waits for the history from being sent, also while the suspend is slow', async () => {
    const calls = heldCalls();
    const showHistory = calls.hold('channel/metadata');
    const answerSuspend = calls.hold(SUSPEND);
    const channel = await stage.channel({ id: 'my-channel' }, { fetch: calls.fetch });
    const sent = channel.send('one');
    const stopped = channel.stop();
    showHistory();
    expect(await sent).toMatchObject({ state: 'stopped' });
    await isLoaded(channel);
    answerSuspend();
    await stopped;
    const next = channel.send('two');
    (await stage.bot.run('two')).answer('2');
    await next;
    expect(texts()).toEqual(['two']);
  });

  test('also stops a message that was sent while an earlier stop is under way, with one suspend', async () => {
    const { channel, hold, suspends } = await held();
    const one = channel.send('one');
    (await stage.bot.run('one')).begin();
    const answerSuspend = hold(SUSPEND);
    const first = channel.stop();
    const two = channel.send('two');
    await until(() => allOf(channel).length === 4);
    const second = channel.stop();
    expect((await two)?.state).toBe('stopped');
    answerSuspend();
    await Promise.all([first, second]);
    expect((await one)?.state).toBe('stopped');
    const three = channel.send('three');
    (await stage.bot.run('three')).answer('3');
    await three;
    expect(texts()).toEqual(['one', 'three']);
    expect(suspends()).toBe(1);
  });

  test('that is slow leaves after two seconds, and the next message waits until it has ended', async () => {
    const { channel, hold } = await held();
    const one = channel.send('one');
    (await stage.bot.run('one')).begin();
    const answerSuspend = hold(SUSPEND);
    await channel.stop();
    expect((await one)?.state).toBe('stopped');
    let answer: ChannelMessage | undefined;
    const two = channel.send('two').then((its) => {
      answer = its;
    });
    // A turn in another conversation, during which a message that does not wait would have come.
    const other = (await stage.channel({ id: 'other' })).send('other');
    (await stage.bot.run('other')).answer('o');
    await other;
    expect(texts()).toEqual(['one', 'other']);
    answerSuspend();
    (await stage.bot.run('two')).answer('2');
    await two;
    expect(answer?.state).toBe('done');
  });

  test('that is never answered does not hold the next message for ever', async () => {
    const { channel, hold } = await held();
    void channel.send('one');
    (await stage.bot.run('one')).begin();
    hold(SUSPEND);
    await channel.stop();
    const two = channel.send('two');
    await until(() => texts().includes('two'), 20);
    (await stage.bot.run('two')).answer('2');
    expect((await two)?.state).toBe('done');
    expect(channel.getSnapshot().error).toMatchObject({ code: 'unreachable' });
  });
});
