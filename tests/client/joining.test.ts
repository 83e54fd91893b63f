import { expect, test } from '@jest/globals';
import { RelayError } from '../../src/client/session/bot-client.ts';
import { joining } from '../../src/client/transport/joining.ts';

const cut = new RelayError('Cut.', { code: 'connection_lost', status: 0 });
const busy = (retryAfter: number) =>
  new RelayError('Busy.', { code: 'draining', status: 503, retryable: 'same message', retryAfter });
const event = { known: false, eventType: 'word', runId: undefined, id: undefined, raw: undefined } as const;
/** A stream of which one event was read. */
function begun() {
  const position = joining();
  position.begin(false);
  position.take(event, '1');
  return position;
}
/** All pauses in a row. */
function pausesOf(position = begun(), error = cut): number[] {
  const pauses: number[] = [];
  for (let next = position.pauseAfter(error); next !== undefined; next = position.pauseAfter(error))
    pauses.push(next);
  return pauses;
}

test('a stream is joined 15 times in a row, within 45 s, and after pauses that differ between pages', () => {
  const pages = Array.from({ length: 40 }, () => pausesOf());
  for (const pauses of pages) {
    expect(pauses).toHaveLength(15);
    expect(pauses.reduce((sum, pause) => sum + pause)).toBeLessThan(45_000);
  }
  for (const [at, base] of [250, 500, 1000, 2000, 2000].entries()) {
    const those = pages.map((pauses) => pauses[at] as number);
    expect(Math.min(...those)).toBeGreaterThanOrEqual(base);
    expect(Math.max(...those)).toBeLessThan(base * 1.5);
    expect(new Set(those).size).toBeGreaterThan(20);
  }
});

test('a message that was never answered is asked for three times', () => {
  expect(pausesOf(joining())).toHaveLength(3);
});

test('Retry-After makes the pauses longer, up to a minute in all', () => {
  expect(pausesOf(begun(), busy(25))).toEqual([25_000, 25_000]);
  expect(pausesOf(begun(), busy(61))).toEqual([]);
});

test('the tries begin again after a new event, up to 50 in all', () => {
  const position = begun();
  let joins = 0;
  for (; position.pauseAfter(cut) !== undefined; joins++) position.take(event, 'again');
  expect(joins).toBe(50);
});
