import { afterEach, expect, test } from '@jest/globals';
import {
  bodyOf,
  DELTA,
  EVENTS,
  INIT,
  type JoinPair,
  KEPT,
  startJoinPair,
  WHOLE,
} from '../harness/clients/joining.ts';
import { total } from '../harness/relay/metric-samples.ts';

let pair: JoinPair;
afterEach(() => pair.close());

/** How many requests have joined a run, by how. */
async function joined() {
  const text = await pair.relay.metricsText();
  const count = (outcome: string) => total(text, 'bot_relay_runs_joined_total', { outcome });
  return { live: count('live'), ended: count('ended'), resumed: count('resumed') };
}

test('bot_relay_runs_joined_total counts each request that gets the stream of another one, by how', async () => {
  pair = await startJoinPair({ METRICS_PORT: '9090' }, () => [INIT, DELTA, KEPT]);
  const first = pair.say();
  await first.waitFor('message.complete');
  expect(await joined()).toEqual({ live: 0, ended: 0, resumed: 0 });
  const live = [pair.say(), pair.byName()];
  for (const client of live) await client.waitFor('message.complete');
  expect(await joined()).toEqual({ live: 2, ended: 0, resumed: 0 });
  const resumed = pair.say({}, { headers: ['Last-Event-ID: 7'] });
  pair.emit(...EVENTS.slice(3));
  pair.finish();
  expect(await bodyOf(resumed)).toBe(EVENTS.slice(3).join(''));
  for (const client of [first, ...live]) expect(await bodyOf(client)).toBe(WHOLE);
  expect(await joined()).toEqual({ live: 2, ended: 0, resumed: 1 });
  expect(await bodyOf(pair.say())).toBe(WHOLE);
  expect(await joined()).toEqual({ live: 2, ended: 1, resumed: 1 });
});
