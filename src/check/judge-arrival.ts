import type { Finding } from './findings.ts';
import type { Observation } from './observe-stream.ts';
import { count } from './print-findings.ts';

/**
 * What the times at which an answer arrived say about buffers on its way: `in_time` if a part of it came while the
 * rest was still to be written; `torn` if it came in blocks that end inside of events; `at_once` if it came whole
 * after a wait; `unclear` if a bot that is quick, or says little, would look the same.
 */
export type Arrival = 'in_time' | 'torn' | 'at_once' | 'unclear';

/** A bot that took this long has had time to show a first event, in ms. */
const LONG_WAIT_MS = 1_000;
/** An answer of fewer events has nothing to be early with. */
const FEW_EVENTS = 3;

/** `direct` is the same bot's answer to the same text without what is to be judged in between, if there is one. */
export function judgeArrival(seen: Observation, direct?: Observation): Arrival {
  const { moments, tornMoments, events, firstByteMs = 0 } = seen;
  // A sender writes whole events; only what collects bytes stops where its block is full.
  if (moments > 1) return tornMoments * 2 > moments - 1 ? 'torn' : 'in_time';
  if (events < FEW_EVENTS) return 'unclear';
  if (firstByteMs >= LONG_WAIT_MS) return 'at_once';
  const spreadBefore = direct !== undefined && judgeArrival(direct) === 'in_time';
  return spreadBefore && firstByteMs >= direct.spreadMs / 2 ? 'at_once' : 'unclear';
}

/** The finding for an answer that went `way`. */
export function arrivalFinding(
  seen: Observation,
  { way, advice, direct }: { way: string; advice: string; direct?: Observation | undefined },
): Omit<Finding, 'about'> {
  const arrival = judgeArrival(seen, direct);
  const first = `first byte after ${seconds(seen.firstByteMs ?? seen.endMs)}`;
  const events = count(seen.events, 'event');
  const measured = {
    headersMs: seen.headersMs,
    ...(seen.firstByteMs !== undefined && { firstByteMs: seen.firstByteMs }),
    endMs: seen.endMs,
    events: seen.events,
    moments: seen.moments,
    spreadMs: seen.spreadMs,
  };
  const finding = (state: Finding['state'], says: string, todo?: string) => ({
    state,
    check: 'arrival',
    says: `${first}; ${says}`,
    ...(todo !== undefined && { advice: todo }),
    measured,
  });
  switch (arrival) {
    case 'in_time':
      return finding(
        'ok',
        `${events} at ${seen.moments} moments over ${seconds(seen.spreadMs)}: not buffered`,
      );
    case 'torn':
      return finding(
        'problem',
        `it came in ${seen.moments} blocks that end inside of events: ${way} buffers`,
        advice,
      );
    case 'at_once':
      return finding(
        'problem',
        `all ${events} in one moment: ${way} buffers, or the bot writes its answer in one piece`,
        `${advice} A bot that is known to answer in one piece proves nothing: try another with --bot.`,
      );
    case 'unclear':
      return finding(
        'note',
        `${events} in one moment: too quick or too little to tell whether ${way} buffers`,
        'Ask for a longer answer with --text.',
      );
  }
}

/** A time for people, from ms. */
export function seconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
