import { expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { bodyOf, EVENTS, INIT, type JoinPair, startJoinPair } from '../harness/clients/joining.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { chunk, plainAnswer, wholeStream } from '../harness/service/raw-upstream.ts';

/** `RUNS` sets another number. */
const RUNS = Number(process.env.RUNS ?? 300);
const leave = (client: RawClient) => void client.socket.destroy();
/** How the service ends a run, by the text of its message, and what its client does. */
const ENDINGS: readonly (readonly [string, (client: RawClient) => unknown])[] = [
  ['whole', bodyOf],
  ['broken', bodyOf],
  ['refused', bodyOf],
  ['failed', bodyOf],
  ['unanswered', bodyOf],
  ['joined', bodyOf],
  ['left', (client) => client.waitFor('run.init').then(() => leave(client))],
  ['left early', leave],
  ['endless', (client) => client.waitFor('run.init').then(() => leave(client))],
  ['slow', bodyOf],
];

/** Starts a relay that forgets its runs soon, and a bot service that ends each run as the text of its message says. */
const start = () =>
  startJoinPair(
    {
      ...{ RATE_LIMIT: '100000', RATE_MAX_WAIT_MS: '0', RESUME_UPSTREAM: 'off', METRICS_PORT: '9090' },
      ...{ JOIN_GRACE_MS: '100', JOIN_KEEP_MS: '300', JOIN_REMEMBER_MS: '300' },
    },
    ({ body }, socket) => {
      const { text } = JSON.parse(String(body)) as { text: string };
      if (text === 'refused') socket.write(plainAnswer('422 No', []));
      else if (text === 'failed') socket.write(plainAnswer('500 No', []));
      else if (text === 'unanswered') socket.destroy();
      else if (text === 'broken') {
        setTimeout(() => socket.destroy(), 20);
        return [INIT];
      } else if (text === 'slow') {
        setTimeout(
          () => socket.write(Buffer.concat([...EVENTS.slice(1).map(chunk), Buffer.from('0\r\n\r\n')])),
          50,
        );
        return [INIT];
      } else if (text.startsWith('left') || text === 'endless') return [INIT];
      else socket.write(wholeStream(...EVENTS));
      return undefined;
    },
  );

async function sendHundred(pair: JoinPair, from: number): Promise<void> {
  await Promise.all(
    Array.from({ length: 100 }, async (_, n) => {
      const [text, end] = ENDINGS[n % ENDINGS.length] as (typeof ENDINGS)[number];
      const message = { text, customChannelId: `c${n}`, customMessageId: `message-number-${from + n}` };
      const client = pair.say(message);
      if (text === 'joined') await bodyOf(pair.say(message));
      await end(client);
    }),
  );
}

async function expectNothingOpen({ relay, cookie }: JoinPair): Promise<void> {
  await until(() => relay.runs.bytes() === 0);
  await until(() => relay.open.count() === 0);
  const metrics = await relay.metricsText();
  expect(metrics).toMatch(/^bot_relay_open_streams 0$/m);
  expect(metrics).toMatch(/^bot_relay_run_log_bytes 0$/m);
  const expired = /^bot_relay_runs_left_total\{outcome="expired"\} (\d+)$/m.exec(metrics)?.[1];
  expect(Number(expired)).toBeGreaterThan(RUNS / 10);
  // All places are free: as many messages as a user may have can be open.
  const logout = await call(relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
  expect(logout.status).toBe(204);
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  await until(() => timers() < 20);
}

test(`${RUNS} runs, ended in every way, leave no run, no timer and no gauge behind`, async () => {
  const pair = await start();
  try {
    for (let from = 0; from < RUNS; from += 100) await sendHundred(pair, from);
    await expectNothingOpen(pair);
  } finally {
    await pair.close();
  }
}, 120_000);
