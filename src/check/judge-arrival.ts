import type { Finding } from './findings.ts';
import type { Observation } from './observe-stream.ts';
import { count } from './print-findings.ts';

/**
 * What the arrival times of an answer say about buffering on its path. `in_time`: a part arrived while the rest was not
 * written yet. `torn`: it arrived in blocks that end inside events. `at_once`: it arrived as a whole after a wait.
 * `unclear`: the answer was too fast or too short to tell.
 */
export type CheckedArrival = 'in_time' | 'torn' | 'at_once' | 'unclear';

/** A bot that took this long had the time to send a first event before, in ms. */
const LONG_WAIT_MS = 1_000;
/** An answer with fewer events is too short to tell. */
const FEW_EVENTS = 3;

/** Judges an answer. `direct`, if known, is the answer of the same bot without the load balancer. */
export function judgeArrival(seen: Observation, direct?: Observation): CheckedArrival {
  const { moments, tornMoments, events, firstByteMs = 0 } = seen;
  // A bot writes whole events. Only a buffer cuts them, where its block is full.
  if (moments > 1) return tornMoments * 2 > moments - 1 ? 'torn' : 'in_time';
  if (events < FEW_EVENTS) return 'unclear';
  if (firstByteMs >= LONG_WAIT_MS) return 'at_once';
  const spreadBefore = direct !== undefined && judgeArrival(direct) === 'in_time';
  return spreadBefore && firstByteMs >= direct.spreadMs / 2 ? 'at_once' : 'unclear';
}

/** The finding for an answer; `between` names what may have buffered it. */
export function arrivalFinding(
  seen: Observation,
  { between, advice, direct }: { between: string; advice: string; direct?: Observation | undefined },
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
        `it came in ${seen.moments} blocks that end inside of events: ${between} buffers`,
        advice,
      );
    case 'at_once':
      return finding(
        'problem',
        `all ${events} in one moment: ${between} buffers, or the bot writes its answer in one piece`,
        `${advice} A bot that is known to answer in one piece proves nothing: try another with --bot.`,
      );
    case 'unclear':
      return finding(
        'note',
        `${events} in one moment: too quick or too little to tell whether ${between} buffers`,
        'Ask for a longer answer with --text.',
      );
  }
}

/** A time in ms as a text to read. */
export function seconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
