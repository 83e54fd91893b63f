import type { Block, Blocks } from './event-blocks.ts';

/** What an event says of its run, in the form that the field's bot services send. */
export interface RunEvent {
  readonly eventType: unknown;
  readonly requestId: unknown;
}

export const RUN_BEGINS = 'asgard.run.init';
const RUN_ENDS: readonly unknown[] = ['asgard.run.done', 'asgard.run.error'];

/** All events about a run as a whole have this in them. */
const OF_A_RUN = '"asgard.run.';
/** How the field's services begin an event: then its type is known without a search through all of it. */
const COMMON_START = 'data: {"eventType":';
const DATA = 'data:';
const SPACE = 0x20;
const TAB = 0x09;
const QUOTE = 0x22;

/** How many first bytes are read of an event that is sent in parts. */
export const START_BYTES = 1024;

/** Whether the event is the end of a run, good or bad. */
export function endsRun({ eventType }: RunEvent): boolean {
  return RUN_ENDS.includes(eventType);
}

/** Whether an event may be about a run as a whole: a cheap test before it is parsed. */
export function mayBeOfARun({ bytes, dataLine, blankLine }: Blocks): boolean {
  if (hasAt(bytes, dataLine, COMMON_START)) {
    let value = dataLine + COMMON_START.length;
    while (bytes[value] === SPACE || bytes[value] === TAB) value++;
    if (bytes[value] === QUOTE) return hasAt(bytes, value, OF_A_RUN);
  }
  return bytes.toString('latin1', dataLine, blankLine).includes(OF_A_RUN);
}

function hasAt(bytes: Buffer, at: number, text: string): boolean {
  for (let n = 0; n < text.length; n++) if (bytes[at + n] !== text.charCodeAt(n)) return false;
  return true;
}

/** Reads a whole event. */
export function readRunEvent({ bytes, from, blankLine }: Block): RunEvent {
  const text = bytes.toString('utf8', from, blankLine);
  // Nearly all events are: this is a fast path.
  const isOneLine = text.startsWith(DATA) && text.indexOf('\n') === text.length - 1 && !text.includes('\r');
  if (isOneLine) return runEventOf(text.slice(DATA.length, -1));
  const lines = text.split(/\r\n|\n|\r/);
  const data = lines.filter((line) => line.startsWith(DATA)).map((line) => line.slice(DATA.length));
  return runEventOf(data.join('\n'));
}

/** Reads an event's data. Both members are undefined if it is no JSON object. */
export function runEventOf(data: string): RunEvent {
  try {
    const { eventType, requestId } = Object(JSON.parse(data)) as Record<string, unknown>;
    return { eventType, requestId };
  } catch {
    return { eventType: undefined, requestId: undefined };
  }
}

/** Reads the first bytes, as latin1, of an event that is sent in parts. */
export function readRunStart(start: string): RunEvent {
  const stringOf = (name: string) => new RegExp(`"${name}"\\s*:\\s*"([^"\\\\]*)"`).exec(start)?.[1];
  return { eventType: stringOf('eventType'), requestId: stringOf('requestId') };
}
