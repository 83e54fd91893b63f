import { afterEach, expect, test } from '@jest/globals';
import { MAX_READERS_PER_USER, TOO_MANY_OF_USER, userReaders } from '../../src/runs/run-reader.ts';
import { bodyOf, INIT, type JoinPair, startJoinPair } from '../harness/clients/joining.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';

let pair: JoinPair | undefined;
afterEach(() => pair?.close());

test('each user has so many readers, and one more ends the oldest', () => {
  const readers = userReaders();
  const add = (user: string) => {
    const stop = new AbortController();
    return { stop, release: readers.add(user, stop) };
  };
  const all = Array.from({ length: MAX_READERS_PER_USER }, () => add('ada'));
  const other = add('grace');
  all[3]?.release();
  all[3]?.release();
  add('ada');
  const aborted = () => all.flatMap(({ stop }, at) => (stop.signal.aborted ? [at] : []));
  expect(aborted()).toEqual([]);
  add('ada');
  expect(aborted()).toEqual([0]);
  expect(all[0]?.stop.signal.reason).toBe(TOO_MANY_OF_USER);
  // It was given back already.
  all[0]?.release();
  add('ada');
  expect(aborted()).toEqual([0, 1]);
  expect(other.stop.signal.aborted).toBe(false);
});

test('the oldest reader of a user is ended, and its run goes on without it', async () => {
  const ids = Array.from({ length: 6 }, (_, n) => `message-000000000${n}`);
  const started = await startJoinPair(
    { MAX_STREAMS_PER_USER: '100', RATE_LIMIT: '100', JOIN_GRACE_MS: '30000' },
    () => [INIT],
  );
  pair = started;
  const say = (customMessageId?: string) => started.say({ customMessageId });
  const first = say(ids[0]);
  await first.waitFor('run.init');
  const { service } = started;
  const oldest = say(ids[0]);
  await oldest.waitFor('run.init');
  // Its last client is the oldest reader.
  first.socket.destroy();
  await until(() => started.relay.open.count() === 1);
  const others = [];
  for (let n = 0; n < MAX_READERS_PER_USER; n += 1) {
    const id = ids[1 + (n % 5)];
    if (n < 5) await say(id).waitFor('run.init');
    const reader = say(id);
    others.push(reader);
    expect(oldest.text()).not.toContain('too_many_streams');
    // Not all bodies are on their way at once.
    if (n % 32 === 0) await reader.waitFor('run.init');
  }
  const body = await bodyOf(oldest);
  expect(body).toContain('"code":"too_many_streams"');
  expect(body).toContain('"retryable":false');
  for (const other of others) await other.waitFor('run.init');
  for (const { socket } of others) socket.destroy();
  const back = say(ids[0]);
  await back.waitFor('run.init');
  expect(service.destroyed).toBe(false);
});
