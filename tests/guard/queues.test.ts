import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { abortableSleep } from '../../src/pace/abortable-sleep.ts';
import { createQueues, limitConcurrency } from '../../src/pace/queues.ts';

/** Lets all promises settle that wait for nothing else. */
const settled = () => new Promise((resolve) => setImmediate(resolve));
const stepsOf = (...kinds: string[]) =>
  fc.array(
    fc.record({
      kind: fc.constantFrom(...kinds),
      key: fc.constantFrom('a', 'b'),
      which: fc.nat(),
      isAborted: fc.boolean(),
      /** Whether the next step comes in the same moment. */
      atOnce: fc.boolean(),
    }),
    { maxLength: 40, size: 'max' },
  );

/** A caller, and what has become of it. */
interface Caller {
  readonly stop: AbortController;
  state: unknown;
  end(how?: unknown): void;
}
const newCaller = (): Caller => ({ stop: new AbortController(), state: 'waits', end: () => {} });

test('of each queue, the first has its turn, and the others follow in their order when it leaves or they give up', () =>
  fc.assert(
    fc.asyncProperty(stepsOf('enter', 'enter', 'leave', 'abort'), async (steps) => {
      const queues = createQueues();
      const all = { a: [] as Caller[], b: [] as Caller[] };
      for (const { kind, key, which, isAborted, atOnce } of steps) {
        const queue = all[key as 'a'];
        const [first] = queue;
        if (kind === 'enter') {
          const caller = newCaller();
          if (isAborted) caller.stop.abort('stopped');
          else queue.push(caller);
          const entered = queues.enter(key, caller.stop.signal).then(
            (leave) => Object.assign(caller, { state: 'in', end: leave }),
            (reason) => Object.assign(caller, { state: reason }),
          );
          if (isAborted) expect(await entered).toMatchObject({ state: 'stopped' });
        } else if (kind === 'leave' && first?.state === 'in') {
          first.end();
          queue.shift();
        } else if (kind === 'abort' && queue.length > 0) {
          const at = which % queue.length;
          const caller = queue[at] as Caller;
          caller.stop.abort('left');
          // Whose turn it is stays until it leaves.
          if (at > 0) {
            queue.splice(at, 1);
            await settled();
            expect(caller.state).toBe('left');
          }
        }
        if (!atOnce) await settled();
        expect([queues.length('a'), queues.length('b')]).toEqual([all.a.length, all.b.length]);
        if (atOnce) continue;
        for (const callers of Object.values(all))
          expect(callers.map(({ state }) => state)).toEqual(callers.map((_, at) => (at ? 'waits' : 'in')));
      }
    }),
  ));

test('no more work runs at once than may, and what waits runs in its order, whatever fails or gives up', () =>
  fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 3 }),
      stepsOf('start', 'start', 'end', 'fail', 'abort'),
      async (max, steps) => {
        const run = limitConcurrency(max);
        const callers: Caller[] = [];
        for (const { kind, which, isAborted } of steps) {
          const caller = callers[which % callers.length];
          if (kind === 'start') {
            const one = newCaller();
            if (isAborted) one.stop.abort('left');
            else callers.push(one);
            const work = () =>
              new Promise((resolve, reject) => {
                one.state = 'runs';
                one.end = (how) => (how === 'fail' ? reject(how) : resolve(how));
              });
            const result = run(work, one.stop.signal);
            const over = result.catch((reason) => reason).then((how) => Object.assign(one, { state: how }));
            if (isAborted) expect(await over).toMatchObject({ state: 'left' });
          } else if (kind === 'abort') caller?.stop.abort('left');
          else if (caller?.state === 'runs') caller.end(kind);
          const wasRunning = caller?.state === 'runs';
          await settled();
          if (caller && kind !== 'start' && (kind === 'abort' ? !wasRunning : wasRunning)) {
            expect(caller.state).toBe(kind === 'abort' ? 'left' : kind);
            callers.splice(callers.indexOf(caller), 1);
          }
          const states = callers.map((_, at) => (at < max ? 'runs' : 'waits'));
          expect(callers.map(({ state }) => state)).toEqual(states);
        }
      },
    ),
  ));

test('a wait is not even a little too short, and ends with the reason of its signal', async () => {
  for (let n = 0; n < 20; n++) {
    const from = performance.now();
    await abortableSleep(3.9, new AbortController().signal);
    expect(performance.now() - from).toBeGreaterThanOrEqual(3.9);
  }
  await expect(abortableSleep(600_000, AbortSignal.abort('left'))).rejects.toBe('left');
});
