import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { Channel } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { allOf, refuseUnhandledRejections, startRunsStage } from '../harness/clients/channels.ts';
import { until } from '../harness/clock/until.ts';
import { deltaOf } from '../harness/service/bot-runs.ts';

refuseUnhandledRejections();

let stage: Awaited<ReturnType<typeof startRunsStage>>;
beforeEach(async () => {
  stage = await startRunsStage({ JOIN_GRACE_MS: '200' });
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
    await until(() => status(channel) === 'ready');
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
    await until(() => status(channel) === 'ready');
    expect(stage.bot.runs.map(({ text }) => text)).toEqual(['one', 'two', 'three']);
    expect(allOf(channel)).toEqual([
      ...['user: one', 'bot: 1', 'user: two', 'bot: 2', 'user: three', 'bot: 3'],
    ]);
  });
});

describe('stop', () => {
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
    await until(() => status(channel) === 'ready');
    expect(allOf(channel)).toEqual(['user: one', 'bot: You (stopped)', 'user: two (stopped)']);
    expect(channel.getSnapshot().error).toBeUndefined();
    expect(stage.bot.runs).toHaveLength(1);
  });
});

describe('retry', () => {
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
    const again = channel.retry(failed?.id);
    (await stage.bot.run('one')).answer('1');
    await again;
    await until(() => status(channel) === 'ready');
    expect(allOf(channel)).toEqual(['user: one', 'bot:  (error)', 'user: one', 'bot: 1']);
  });
});

describe('a message', () => {
  test('keeps its identity until it changes', async () => {
    const channel = await stage.channel();
    const first = channel.send('one');
    (await stage.bot.run('one')).answer('1');
    await first;
    await until(() => status(channel) === 'ready');
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
