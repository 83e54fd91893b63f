import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { PROBLEMS } from '../../src/errors.ts';
import { call } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { type Sample, samplesOf } from '../harness/relay/metric-samples.ts';
import { BOT_PATH, CANARY, MESSAGE } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), {
    METRICS_PORT: '9090',
    BOTS: '*/*',
  });
});
afterAll(() => pair.close());

const samples = async (): Promise<Sample[]> =>
  // The series of the runtime change with its own objects.
  samplesOf(await pair.relay.metricsText()).filter(({ name }) => name.startsWith('bot_relay_'));

const requests = (all: readonly Sample[]) =>
  all.filter(({ name }) => name === 'bot_relay_requests_total').reduce((sum, { value }) => sum + value, 0);

/** How many requests of a round are counted. */
const PER_ROUND = 12;

/** Sends requests in which everything that a caller can choose is new in each round. */
async function hostileRound(round: string): Promise<void> {
  const { port } = pair.relay;
  const json = { 'Content-Type': 'application/json', 'X-Request-Id': `id-${round}-0123456` };
  const message = { method: 'POST', headers: { ...json, Cookie: pair.cookie }, body: MESSAGE };
  await call(port, `/${round}`);
  await call(port, `/%00${round}?key=${CANARY.key}`);
  await call(port, `/auth/${round}"}\\n`);
  await call(port, `/x`, {
    headers: { 'User-Agent': round, 'X-API-KEY': CANARY.key, Origin: `http://${round}` },
  });
  for (const method of ['PROPFIND', 'M-SEARCH', 'PURGE', 'TRACE'])
    await call(port, '/auth/login', { method });
  await call(port, BOT_PATH.replace('helper', `bot-${round}`), message);
  await call(port, BOT_PATH.replace('acme', `ns-${round}`), message);
  await call(port, BOT_PATH, {
    ...message,
    headers: { ...json, Cookie: `bot_relay_session=${round}.x` },
  });
  await call(port, '/auth/login', {
    method: 'POST',
    headers: json,
    body: JSON.stringify({ username: `user-${round}`, password: CANARY.password }),
  });
}

/** The samples once there are `count` requests more than the sign-in. */
async function samplesAfter(count: number): Promise<Sample[]> {
  await until(async () => requests(await samples()) === 1 + count, 20);
  return samples();
}

describe('the labels of the metrics', () => {
  test('do not grow with made-up paths, methods, bots and users', async () => {
    await hostileRound('first');
    const before = await samplesAfter(PER_ROUND);
    for (let round = 0; round < 5; round++) await hostileRound(`made-up-${round}`);
    const after = await samplesAfter(6 * PER_ROUND);
    const series = (all: Sample[]) => all.map(({ name, labels }) => name + JSON.stringify(labels)).sort();
    expect(series(after)).toEqual(series(before));
  });

  test('have only values from lists of the relay', async () => {
    await hostileRound('second');
    await samplesAfter(7 * PER_ROUND);
    const known: Record<string, (value: string) => boolean> = {
      route: (value) => value === 'none' || /^\/(auth\/[a-z]+|generic\/[a-zA-Z:/-]+)$/.test(value),
      method: (value) => /^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|other)$/.test(value),
      status: (value) => /^[2-5]\d\d$/.test(value),
      code: (value) => value in PROBLEMS || /^(ok|client_closed|client_stalled)$/.test(value),
      key: (value) => /^[0-9a-f]{8}$/.test(value),
      outcome: (value) => /^(\dxx|[a-z_]+)$/.test(value),
      direction: (value) => /^(up|down)$/.test(value),
      reason: (value) => /^(too_large|no_room|held|no_end_event|address|instance)$/.test(value),
      check: (value) => value === 'accepting',
      version: (value) => /^\d+\.\d+\.\d+$/.test(value),
      revision: (value) => /^([0-9a-f]{12}|unknown)$/.test(value),
      operation: (value) => /^(get|set|touch|destroy)$/.test(value),
      le: (value) => value === '+Inf' || Number(value) > 0,
    };
    for (const { labels } of await samples()) {
      for (const [label, value] of Object.entries(labels)) {
        expect([label, value, known[label]?.(value)]).toEqual([label, value, true]);
      }
    }
    expect((await samples()).filter(({ labels }) => labels.method === 'other')).not.toEqual([]);
  });

  test('show no secret, session, user or bot', async () => {
    const text = await pair.relay.metricsText();
    const cookie = decodeURIComponent(pair.cookie.split('=')[1] ?? '');
    const id = cookie.slice(2).split('.')[0] ?? '';
    expect(id.length).toBeGreaterThan(20);
    for (const shown of [...Object.values(CANARY), id, 'ada', 'acme', 'helper', 'first', 'made-up']) {
      expect([shown, new RegExp(`"[^"\n]*${shown}`).test(text)]).toEqual([shown, false]);
      if (shown.length > 10) expect(text).not.toContain(shown);
    }
  });
});
