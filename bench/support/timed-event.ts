const START = 'data: {"n":"';
const NUMBER_DIGITS = 10;
const AT = '","at":"';
const TIME_DIGITS = 20;
const FILL = '","fill":"';
const END = '"}\n\n';
const FILL_STARTS = START.length + NUMBER_DIGITS + AT.length + TIME_DIGITS + FILL.length;
const COLON = 0x3a;
const LF = 0x0a;

/** The length of the shortest event, in bytes. */
export const MIN_EVENT_BYTES = FILL_STARTS + END.length;

/** The time by a clock that all processes of a machine share, in ms. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** The first part of an event: its number in the stream, and the current time. `restOfEvent` is the second part. */
export function startOfEvent(n: number): string {
  const [number, time] = [String(n), String(process.hrtime.bigint())];
  return START + number.padStart(NUMBER_DIGITS, '0') + AT + time.padStart(TIME_DIGITS, '0');
}

/** The second part of an event of `bytes` bytes in all; it is the same for all events. */
export function restOfEvent(bytes: number): string {
  if (bytes < MIN_EVENT_BYTES) throw new RangeError(`an event has at least ${MIN_EVENT_BYTES} bytes`);
  return FILL + 'x'.repeat(bytes - MIN_EVENT_BYTES) + END;
}

export interface EventReader {
  /** Takes the next bytes of the stream. @throws Error if an event differs from what was sent */
  push(body: Buffer): void;
  /** @throws Error if the stream ends inside an event */
  end(): void;
}

/**
 * Reads a stream of events of `bytes` bytes each, and checks that each of them comes whole, unchanged and in
 * order. Comment lines between events (heartbeats) are skipped. `onEvent` gets the delay of each event, in ms.
 */
export function eventReader(bytes: number, onEvent: (delayMs: number) => void): EventReader {
  const event = Buffer.alloc(bytes);
  const expected = Buffer.from(startOfEvent(0) + restOfEvent(bytes));
  let filled = 0;
  let next = 0;
  let inComment = false;

  function checkEvent(): void {
    const digits = event.toString('latin1', START.length, START.length + NUMBER_DIGITS);
    const timeStarts = FILL_STARTS - FILL.length - TIME_DIGITS;
    const sentAt = Number(event.toString('latin1', timeStarts, timeStarts + TIME_DIGITS)) / 1e6;
    const rest = FILL_STARTS - FILL.length;
    const isWhole =
      Number(digits) === next &&
      event.compare(expected, 0, START.length, 0, START.length) === 0 &&
      event.compare(expected, rest, bytes, rest, bytes) === 0;
    if (!isWhole) throw new Error(`event ${next} is not what was sent: ${event.toString('latin1', 0, 120)}`);
    next++;
    onEvent(monotonicMs() - sentAt);
  }

  return {
    push(body) {
      let at = 0;
      while (at < body.length) {
        if (inComment || (filled === 0 && body[at] === COLON)) {
          const lineEnd = body.indexOf(LF, at);
          inComment = lineEnd < 0;
          at = inComment ? body.length : lineEnd + 1;
          continue;
        }
        const length = body.copy(event, filled, at);
        filled += length;
        at += length;
        if (filled < bytes) continue;
        filled = 0;
        checkEvent();
      }
    },
    end() {
      if (filled > 0) throw new Error(`the stream ends inside event ${next}`);
    },
  };
}
