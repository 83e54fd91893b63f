import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { ChannelMessage } from '../../src/client/channel/channel-types.ts';
import { allOf, refuseUnhandledRejections, startRunsStage } from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';

refuseUnhandledRejections();

const SUSPEND = 'message/suspend';
let stage: Awaited<ReturnType<typeof startRunsStage>>;
beforeEach(async () => {
  stage = await startRunsStage({ OPERATIONS: 'message,chat', JOIN_GRACE_MS: '200' });
});
afterEach(() => stage.close());

const texts = () => stage.bot.runs.map(({ text }) => text);

/** A channel whose calls can be held, and which has been loaded. */
async function held() {
  const calls = heldCalls();
  const channel = await stage.channel({ id: 'my-channel' }, { fetch: calls.fetch });
  await until(() => !channel.getSnapshot().isLoading);
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
    await until(() => !channel.getSnapshot().isLoading);
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
