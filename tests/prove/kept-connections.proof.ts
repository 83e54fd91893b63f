import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import type { ClosingReport } from '../harness/service/closing-service.ts';

const SERVICE = fileURLToPath(new URL('../harness/service/closing-service.ts', import.meta.url));
const MESSAGES = Number(process.env.KEPT_MESSAGES ?? 20_000);
/** As many connections as are kept. */
const BURST = 256;

/** A service that closes its idle connections, and how long all connections are idle between two bursts, in ms. */
interface Series {
  readonly closing: string;
  readonly idleMs: readonly [number, number];
}

const SERIES: readonly Series[] = [
  { closing: 'after 5 s', idleMs: [3600, 5200] },
  { closing: 'after 5 s, announced', idleMs: [3600, 5200] },
  { closing: 'after 300 ms', idleMs: [50, 400] },
  { closing: 'at random moments', idleMs: [50, 1500] },
];

interface Outcome {
  readonly service: ClosingReport;
  /** The numbers of the messages that were answered with a stream, and the problems of the others. */
  readonly answered: readonly number[];
  readonly problems: readonly object[];
}

const children: ChildProcess[] = [];
const relays: TestRelay[] = [];
const outcomes = new Map<string, Promise<Outcome>>();

async function reportOf(child: ChildProcess): Promise<ClosingReport> {
  const [report] = await once(child, 'message');
  return report as ClosingReport;
}

async function run({ closing, idleMs: [least, most] }: Series): Promise<Outcome> {
  const child = fork(SERVICE, [closing]);
  children.push(child);
  const relay = await startRelay(`http://127.0.0.1:${(await reportOf(child)).port}`);
  relays.push(relay);
  const cookie = await relay.signIn();
  const answered: number[] = [];
  const problems: object[] = [];
  async function send(n: number): Promise<void> {
    const response = await relay.send(cookie, { body: JSON.stringify({ n }) });
    const text = await response.text();
    if (response.status !== 200) problems.push(JSON.parse(text) as object);
    else if (text === 'data: a\n\n') answered.push(n);
    else problems.push(errorEventIn(text));
  }
  for (let n = 0; n < MESSAGES; n += BURST) {
    if (n > 0) await sleep(least + Math.random() * (most - least));
    const size = Math.min(BURST, MESSAGES - n);
    await Promise.all(Array.from({ length: size }, (_, index) => send(n + index)));
  }
  child.send('report');
  return { service: await reportOf(child), answered, problems };
}

// All at once: each waits most of its time.
beforeAll(() => {
  for (const series of SERIES) outcomes.set(series.closing, run(series));
});

afterAll(async () => {
  for (const relay of relays) await relay.close();
  for (const child of children) child.disconnect();
});

test.each(SERIES)(
  'no message is sent twice to a service that closes idle connections $closing',
  async ({ closing }) => {
    const { service, answered, problems } = (await outcomes.get(closing)) as Outcome;
    const { connections, read } = service;
    const wasRead = new Set(read.map(([n]) => n));
    const readAndFailed = wasRead.size - answered.length;
    const percent = (count: number) => `${((100 * count) / MESSAGES).toFixed(2)} %`;
    console.info(
      `closes ${closing}: ${MESSAGES} messages, ${percent(problems.length)} failed ` +
        `(${percent(readAndFailed)} after the service had read them), ` +
        `${percent(MESSAGES - connections)} on a kept connection`,
    );
    expect(read.filter(([, times]) => times > 1)).toEqual([]);
    expect(answered.length + problems.length).toBe(MESSAGES);
    expect(answered.filter((n) => !wasRead.has(n))).toEqual([]);
    for (const problem of problems) expect(problem).toMatchObject({ maybeStarted: true, retryable: false });
    expect(connections).toBeLessThan(MESSAGES);
    if (closing.startsWith('after 5 s')) expect(problems).toEqual([]);
  },
  (MESSAGES / BURST) * 10_000 + 60_000,
);
