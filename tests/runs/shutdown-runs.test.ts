import { afterEach, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { bodyOf, DELTA, EVENTS, INIT, KEPT, problemOf, WHOLE } from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { endOf, type JoinInstances, startJoinInstances } from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { chunk, wholeStream } from '../harness/service/raw-upstream.ts';

let all: JoinInstances;
afterEach(() => all.close());

/** Starts two instances. The bot service begins the stream of a run with these events, and ends it if it is resumed. */
async function start(begins: readonly string[], settings: Record<string, string>) {
  all = await startJoinInstances(2, settings, (request, socket) => {
    if (request.all('last-event-id').length === 0) return begins;
    socket.write(wholeStream(...EVENTS.slice(3)));
    return undefined;
  });
  const [holder] = all.relays as [TestRelay, TestRelay];
  const own = all.say(0);
  await own.waitFor(begins.at(-1) as string);
  return { holder, own };
}

/** A run that the first instance carries, and that only a client of the second one reads. */
async function readElsewhere(settings: Record<string, string>, begins: readonly string[]) {
  const { holder, own } = await start(begins, settings);
  const reader = all.say(1);
  await reader.waitFor(begins.at(-1) as string);
  await all.leave(0, own);
  return { holder, reader };
}

describeWithRedis('the shutdown of an instance whose run is read at another one only', () => {
  test('lets the run end by itself, and is over after that', async () => {
    const { holder, reader } = await readElsewhere({ SHUTDOWN_GRACE_MS: '600000' }, [INIT, DELTA]);
    let isClosed = false;
    const closing = holder.close().then(() => {
      isClosed = true;
    });
    await until(() => holder.lifecycle.isDraining());
    all.emit('data: while it drains\n\n');
    await reader.waitFor('while it drains');
    expect([isClosed, all.streams[0]?.destroyed]).toEqual([false, false]);
    all.streams[0]?.write(Buffer.concat(EVENTS.slice(2).map(chunk)));
    all.finish();
    expect(await bodyOf(reader)).toContain('run.done');
    await closing;
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('is over once its readers have left', async () => {
    const { holder, reader } = await readElsewhere({ SHUTDOWN_GRACE_MS: '600000', JOIN_GRACE_MS: '1' }, [
      INIT,
      DELTA,
    ]);
    const closing = holder.close();
    await until(() => holder.lifecycle.isDraining());
    reader.socket.destroy();
    await closing;
    expect(all.streams[0]?.destroyed).toBe(true);
  });

  test('ends it truthfully at the end of the grace, and who has an id gets the rest from the service', async () => {
    const begins = [INIT, DELTA, KEPT];
    const { holder, reader } = await readElsewhere({ SHUTDOWN_GRACE_MS: '1' }, begins);
    await holder.close();
    expect(all.streams[0]?.destroyed).toBe(true);
    expect(await endOf(reader)).toEqual({ events: begins.join(''), code: 'answer_lost' });
    expect(reader.text()).toContain('The relay was restarted');
    expect(await endOf(all.say(1))).toEqual({ events: begins.join(''), code: 'answer_lost' });
    expect(await bodyOf(all.say(1, {}, ['Last-Event-ID: 7']))).toBe(EVENTS.slice(3).join(''));
    expect(all.upstream.requests.map((request) => request.all('last-event-id'))).toEqual([[], ['7']]);
  });
});

describeWithRedis('a shutdown while a message asks whose run it is', () => {
  test('invites no new message if another instance has sent it', async () => {
    all = await startJoinInstances(2, {}, () => [INIT]);
    const [holder] = all.relays as [TestRelay];
    await all.say(1).waitFor('run.init');
    const claim = (all.wires[0] as FaultProxy).hold('server', ':names');
    const own = all.say(0);
    await claim.begun;
    holder.open.endAll(new Problem('draining', 'The relay is shutting down.'));
    claim.release();
    expect(await endOf(own)).toEqual({ events: '', code: 'answer_lost' });
    expect(own.text()).not.toContain('new message');
  });
});

describeWithRedis('a page that is reloaded while the instance that carries its run drains', () => {
  const GRACE = { SHUTDOWN_GRACE_MS: '600000' };

  /** The client leaves; resolves once the first instance knows it, and drains. */
  async function leave({ holder, own }: Awaited<ReturnType<typeof start>>, isBefore = false) {
    const left = async () => {
      await all.leave(0, own);
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
      const page = all.byName(1);
      await page.waitFor('message.delta');
      all.emit(...EVENTS.slice(2));
      all.finish();
      expect(await bodyOf(page)).toBe(WHOLE);
      await closing;
      expect(all.upstream.requests).toHaveLength(1);
    },
  );

  test('holds the shutdown for no longer than the run goes on without it', async () => {
    const started = await start([INIT, DELTA], { ...GRACE, JOIN_GRACE_MS: '1' });
    const { closing } = await leave(started);
    await closing;
    expect(all.streams[0]?.destroyed).toBe(true);
    expect(await problemOf(all.byName(1))).toMatchObject({ code: 'run_over' });
  });
});
