import type { Finding } from './findings.ts';
import { seconds } from './judge-arrival.ts';
import type { Observation } from './observe-stream.ts';

/** Heartbeats can be late by an eighth, and the network delays them further. */
const LATE = 1.5;

/** Judges whether heartbeats came when the answer was silent for long enough. `heartbeatMs` is `HEARTBEAT_MS`. */
export function heartbeatFinding(seen: Observation, heartbeatMs: number): Finding {
  const check = 'heartbeat';
  const silence = seconds(seen.longestSilenceMs);
  if (seen.heartbeats > 0) {
    return {
      state: 'ok',
      check,
      says: `seen ${seen.heartbeats} of them; the longest silence was ${silence}`,
    };
  }
  if (heartbeatMs === 0) {
    const advice = 'What stands in between may drop a stream that is silent; see HEARTBEAT_MS.';
    return { state: 'note', check, says: 'turned off by HEARTBEAT_MS=0', advice };
  }
  if (seen.longestSilenceMs > heartbeatMs * LATE) {
    return {
      state: 'problem',
      check,
      says: `none in a silence of ${silence}, and HEARTBEAT_MS is ${heartbeatMs}`,
      advice: 'Something in between holds small pieces back, or the relay runs with another HEARTBEAT_MS.',
    };
  }
  return {
    state: 'note',
    check,
    says: `not seen in this answer: it was never silent for ${seconds(heartbeatMs)}`,
    advice: 'To see one, name a bot that is silent for so long with --bot, or ask for it with --text.',
  };
}
