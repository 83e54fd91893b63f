import { afterEach, expect, jest, test } from '@jest/globals';
import { countAwakeMs } from '../support/awake.ts';
import { type JoinInstances, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, DELTA, EVENTS, INIT, KEPT, problemOf, WHOLE } from '../support/joining.ts';
import { samplesOf } from '../support/metric-samples.ts';
import type { RawClient } from '../support/raw-client.ts';
import { chunk, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { TestRelay } from '../support/relay.ts';
import { sleep } from '../support/sleep.ts';
import { until } from '../support/until.ts';

jest.setTimeout(60_000);

let all: JoinInstances;
afterEach(() => all.close());

/** Starts two instances. The bot service begins the stream of a run with these events, and ends it if it is resumed. */
async function start(begins: readonly string[], settings: Record<string, string>) {
  const environment = { METRICS_PORT: '9090', ...settings };
  all = await startJoinInstances(2, environment, (request, socket) => {
    if (request.all('last-event-id').length === 0) return begins;
    socket.write(wholeStream(...EVENTS.slice(3)));
    return undefined;
  });
  const [holder, other] = all.relays as [TestRelay, TestRelay];
  const own = all.say(0);
  await own.waitFor(begins.at(-1) as string);
  return { holder, other, own };
}

/** A run that the first instance carries, and that only a client of the second one reads. */
async function readElsewhere(graceMs: number, begins: readonly string[]) {
  const { holder, other, own } = await start(begins, { SHUTDOWN_GRACE_MS: String(graceMs) });
  own.socket.destroy();
  await until(() => holder.open.count() === 0);
  const reader = all.say(1);
  await reader.waitFor(begins.at(-1) as string);
  // The instance that carries it knows of the reader.
  await holder.logLine(({ outcome }) => outcome === 'returned');
  return { holder, other, reader };
}

const movesAt = ({ logs }: TestRelay) =>
  logs.filter(({ msg }) => msg === 'run moved').map(({ outcome }) => outcome);

/** The outcomes that `bot_relay_runs_moved_total` has counted, and how often. */
async function countedAt(relay: TestRelay) {
  const samples = samplesOf(await relay.metricsText());
  const moved = samples.filter(({ name, value }) => name === 'bot_relay_runs_moved_total' && value > 0);
  return moved.map(({ labels, value }) => [labels.outcome, value]);
}

async function expectWhole(reader: RawClient) {
  expect(await bodyOf(reader)).toBe(WHOLE);
}

describeWithRedis('the shutdown of an instance whose run is read at another one only', () => {
  test('lets the run end by itself, and is over after that', async () => {
    const { holder, reader } = await readElsewhere(60_000, [INIT, DELTA]);
    let isClosed = false;
    const closing = holder.close().then(() => {
      isClosed = true;
    });
    await until(() => holder.lifecycle.isDraining());
    await sleep(1_000);
    expect([isClosed, all.streams[0]?.destroyed]).toEqual([false, false]);
    all.streams[0]?.write(Buffer.concat(EVENTS.slice(2).map(chunk)));
    all.finish();
    await expectWhole(reader);
    const awakeMs = countAwakeMs();
    await closing;
    expect(awakeMs()).toBeLessThan(10_000);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('is over once its readers have left', async () => {
    const { holder, reader } = await readElsewhere(60_000, [INIT, DELTA]);
    const closing = holder.close();
    await until(() => holder.lifecycle.isDraining());
    const awakeMs = countAwakeMs();
    reader.socket.destroy();
    await closing;
    expect(awakeMs()).toBeLessThan(20_000);
    expect(all.streams[0]?.destroyed).toBe(true);
  });

  test('hands it over at the end of the grace', async () => {
    const { holder, other, reader } = await readElsewhere(1_000, [INIT, DELTA, KEPT]);
    await holder.close();
    await expectWhole(reader);
    expect(movesAt(holder)).toEqual(['handed_over']);
    expect(movesAt(other)).toEqual(['taken_over']);
    expect(await countedAt(holder)).toEqual([['handed_over', 1]]);
    expect(await countedAt(other)).toEqual([['taken_over', 1]]);
    expect(all.upstream.requests.map((request) => request.all('last-event-id'))).toEqual([[], ['7']]);
  });
});

describeWithRedis('a page that is reloaded while the instance that carries its run drains', () => {
  const GRACE = { SHUTDOWN_GRACE_MS: '60000' };

  /** The client leaves; resolves once the first instance knows it, and drains. */
  async function leave({ holder, own }: Awaited<ReturnType<typeof start>>, isBefore = false) {
    const left = async () => {
      own.socket.destroy();
      await until(() => holder.open.count() === 0);
    };
    if (isBefore) await left();
    const closing = holder.close();
    await until(() => holder.lifecycle.isDraining());
    if (!isBefore) await left();
    return { closing };
  }

  test.each([true, false])(
    'gets the whole answer of its one run elsewhere; it had left before: %s',
    async (isBefore) => {
      const started = await start([INIT, DELTA], GRACE);
      const { closing } = await leave(started, isBefore);
      await sleep(500);
      const page = all.byName(1);
      await page.waitFor('message.delta');
      all.emit(...EVENTS.slice(2));
      all.finish();
      await expectWhole(page);
      const awakeMs = countAwakeMs();
      await closing;
      expect(awakeMs()).toBeLessThan(10_000);
      expect(all.upstream.requests).toHaveLength(1);
      expect(movesAt(started.holder)).toEqual([]);
    },
  );

  test('gets it from an instance that goes on with it, if the grace is over before the page asks', async () => {
    const started = await start([INIT, DELTA, KEPT], { SHUTDOWN_GRACE_MS: '1000' });
    const { closing } = await leave(started);
    await closing;
    expect(all.streams[0]?.destroyed).toBe(true);
    expect(movesAt(started.holder)).toEqual(['handed_over']);
    await expectWhole(all.byName(1));
    expect(movesAt(started.other)).toEqual(['taken_over']);
    expect(all.upstream.requests.map((request) => request.all('last-event-id'))).toEqual([[], ['7']]);
  });

  test('holds the shutdown for no longer than the run goes on without it', async () => {
    const started = await start([INIT, DELTA], { ...GRACE, JOIN_GRACE_MS: '1000' });
    const { closing } = await leave(started);
    expect(all.streams[0]?.destroyed).toBe(false);
    const awakeMs = countAwakeMs();
    await closing;
    expect(awakeMs()).toBeLessThan(20_000);
    expect(all.streams[0]?.destroyed).toBe(true);
    expect(await problemOf(all.byName(1))).toMatchObject({ code: 'run_over' });
  });
});
