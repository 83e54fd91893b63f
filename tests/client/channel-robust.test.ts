import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { ChannelMessage } from '../../src/client/channel/channel-types.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import {
  aChannelWasDropped,
  allOf,
  refuseUnhandledRejections,
  startRunsStage,
} from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';

refuseUnhandledRejections();

let stage: Awaited<ReturnType<typeof startRunsStage>>;
beforeEach(async () => {
  stage = await startRunsStage({ OPERATIONS: 'message,chat', JOIN_GRACE_MS: '60000' });
});
afterEach(() => stage.close());
afterEach(() => void Reflect.deleteProperty(globalThis, 'reportError'));

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
    const two = channel.send('two');
    (await stage.bot.run('two')).answer('2');
    expect((await two)?.state).toBe('done');
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

test('a message that cannot be sent is an error, also when it is sent again', async () => {
  const channel = await stage.channel();
  // A page without TypeScript can pass it, as for an upload that has failed.
  expect(await channel.send({ files: [undefined] as never })).toBeUndefined();
  await until(() => channel.getSnapshot().error?.cause instanceof TypeError);
  const { error } = channel.getSnapshot();
  expect(await channel.regenerate()).toBeUndefined();
  await until(() => channel.getSnapshot().error !== error);
  expect(channel.getSnapshot().error?.cause).toBeInstanceOf(TypeError);
});

test('a store with other contents than the client’s does no harm', async () => {
  const { kept, store } = memoryStore();
  for (const key of ['bot-relay-channels', 'bot-relay-messages']) kept.set(key, '[1, null, "x"]');
  const channel = await stage.channel({}, { ids: store });
  const sent = channel.send('one');
  (await stage.bot.run('one')).answer('1');
  expect((await sent)?.state).toBe('done');
});

test('an answer that goes on after a reload stands above what was sent meanwhile', async () => {
  const { store } = memoryStore();
  const first = await stage.channel({ id: 'my-channel' }, { ids: store });
  void first.send('one');
  const run = await stage.bot.run('one');
  run.begin();
  const fact = { messageDelta: { message: { messageId: 'm', text: '1' } } };
  run.write(`data: ${JSON.stringify({ eventType: 'asgard.message.delta', requestId: 'run-1', fact })}\n\n`);
  await until(() => allOf(first).includes('bot: 1 (streaming)'));
  const calls = heldCalls();
  const goOn = calls.hold('message/run');
  const again = await stage.channel({ id: 'my-channel' }, { ids: store, fetch: calls.fetch });
  void again.send('two');
  await until(() => allOf(again).includes('user: two'));
  goOn();
  await until(() => allOf(again).length === 3);
  expect(allOf(again).map((line) => line.slice(0, 9))).toEqual(['bot: 1 (s', 'user: two', 'bot:  (su']);
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
