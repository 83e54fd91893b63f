import type { Observation } from './observe-stream.ts';
import { count, note, ok, problem, seconds, type Verdict } from './report.ts';

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
/** In a silence this many times as long as the period, a heartbeat must have come: it can be late, and be delayed. */
const LATE = 1.5;

/** What is judged of an answer. */
export type Arrival = Pick<Observation, 'moments' | 'tornMoments' | 'events' | 'firstByteMs' | 'spreadMs'>;

/** Judges an answer. `direct`, if known, is the answer of the same bot without the load balancer. */
export function judgeArrival(seen: Arrival, direct?: Arrival): CheckedArrival {
  const { moments, tornMoments, events, firstByteMs = 0 } = seen;
  // A bot writes whole events. Only a buffer cuts them, where its block is full.
  if (moments > 1) return tornMoments * 2 > moments - 1 ? 'torn' : 'in_time';
  if (events < FEW_EVENTS) return 'unclear';
  if (firstByteMs >= LONG_WAIT_MS) return 'at_once';
  const spreadBefore = direct !== undefined && judgeArrival(direct) === 'in_time';
  return spreadBefore && firstByteMs >= direct.spreadMs / 2 ? 'at_once' : 'unclear';
}

/** Whether an answer was buffered; `between` names what may have done it. */
export function arrivalVerdict(
  seen: Observation,
  { between, advice, direct }: { between: string; advice: string; direct?: Observation | undefined },
): Verdict {
  const { headersMs, firstByteMs, endMs, events, moments, spreadMs } = seen;
  const measured = {
    headersMs,
    ...(firstByteMs !== undefined && { firstByteMs }),
    endMs,
    events,
    moments,
    spreadMs,
  };
  const all = count(events, 'event');
  const verdict = (state: Verdict['state'], says: string, todo?: string): Verdict => ({
    ...{ state, advice: todo, measured },
    says: `first byte after ${seconds(firstByteMs ?? endMs)}; ${says}`,
  });
  switch (judgeArrival(seen, direct)) {
    case 'in_time':
      return verdict('ok', `${all} at ${moments} moments over ${seconds(spreadMs)}: not buffered`);
    case 'torn':
      return verdict(
        'problem',
        `it came in ${moments} blocks that end inside of events: ${between} buffers`,
        advice,
      );
    case 'at_once':
      return verdict(
        'problem',
        `all ${all} in one moment: ${between} buffers, or the bot writes its answer in one piece`,
        `${advice} A bot that is known to answer in one piece proves nothing: try another with --bot.`,
      );
    case 'unclear':
      return verdict(
        'note',
        `${all} in one moment: too quick or too little to tell whether ${between} buffers`,
        'Ask for a longer answer with --text.',
      );
  }
}

/** How an answer ended, be it from the bot service or through the relay. `quote` makes its texts safe to print. */
export function endingVerdict(seen: Observation, quote: (text: string) => string): Verdict {
  const ofBot = "Look at the bot at the service's console.";
  if (seen.broken !== undefined)
    return problem(
      `broke off after ${seconds(seen.endMs)} (${quote(seen.broken)})`,
      'Try again; if it stays, look at what stands in between and at how long it lets a connection live.',
    );
  if (seen.runError !== undefined)
    return problem(`the run ended in an error: ${quote(seen.runError)}`, ofBot);
  if (seen.events === 0) return problem('no event in it', ofBot);
  return ok(`whole after ${seconds(seen.endMs)}`);
}

/** Whether heartbeats came when the answer was silent for long enough. `heartbeatMs` is `HEARTBEAT_MS`. */
export function heartbeatVerdict(seen: Observation, heartbeatMs: number): Verdict {
  const silence = seconds(seen.longestSilenceMs);
  if (seen.heartbeats > 0) return ok(`seen ${seen.heartbeats} of them; the longest silence was ${silence}`);
  if (heartbeatMs === 0)
    return note(
      'turned off by HEARTBEAT_MS=0',
      'What stands in between may drop a stream that is silent; see HEARTBEAT_MS.',
    );
  if (seen.longestSilenceMs > heartbeatMs * LATE)
    return problem(
      `none in a silence of ${silence}, and HEARTBEAT_MS is ${heartbeatMs}`,
      'Something in between holds small pieces back, or the relay runs with another HEARTBEAT_MS.',
    );
  return note(
    `not seen in this answer: it was never silent for ${seconds(heartbeatMs)}`,
    'To see one, name a bot that is silent for so long with --bot, or ask for it with --text.',
  );
}
