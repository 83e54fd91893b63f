import { expect, test } from '@jest/globals';
import { eventReader, MIN_EVENT_BYTES, restOfEvent, startOfEvent } from '../../bench/support/timed-event.ts';

const BYTES = 120;
const event = (n: number) => startOfEvent(n) + restOfEvent(BYTES);

/** The delays that the reader finds in `pieces`. */
function read(...pieces: string[]): number[] {
  const delays: number[] = [];
  const reader = eventReader(BYTES, (delayMs) => delays.push(delayMs));
  for (const piece of pieces) reader.push(Buffer.from(piece, 'latin1'));
  reader.end();
  return delays;
}

test('an event is one event of the given length', () => {
  expect(event(7)).toHaveLength(BYTES);
  expect(event(7)).toMatch(/^data: \{"n":"0*7","at":"\d+","fill":"x+"\}\n\n$/);
  expect(() => restOfEvent(MIN_EVENT_BYTES - 1)).toThrow(RangeError);
});

test('the reader gives the delay of each event, wherever the stream is split', () => {
  const stream = event(0) + event(1);
  for (let at = 1; at < stream.length; at++) {
    const delays = read(stream.slice(0, at), stream.slice(at));
    expect(delays).toHaveLength(2);
    for (const delay of delays) expect(delay).toBeGreaterThanOrEqual(0);
  }
});

test('heartbeats between events are skipped', () => {
  expect(read(`:\n${event(0)}:`, `\n:\n${event(1)}`)).toHaveLength(2);
});

test('a missing, repeated, changed or incomplete event is an error', () => {
  expect(() => read(event(0), event(2))).toThrow('event 1');
  expect(() => read(event(0), event(0))).toThrow('event 1');
  expect(() => read(event(0).replace('xx', 'xy'))).toThrow('event 0');
  expect(() => read(event(0).replace('data', 'dado'))).toThrow('event 0');
  expect(() => read(event(0), event(1).slice(0, 50))).toThrow('inside event 1');
});
