import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import { isEventStream } from './judge-response.ts';

/**
 * What became of a resumption. `unavailable`: the service cannot be reached behind its proxy (502, 503, 504). `over`: there
 * is nothing to resume.
 */
export type ResumptionVerdict = 'stream' | 'key_refused' | 'asked_to_wait' | 'unavailable' | 'over';

const UNAVAILABLE = new Set([502, 503, 504]);

/** Judges the answer to a resumption by its head. Unless it is a stream, it is closed unread. */
export function judgeResumption(answer: UpstreamAnswer): ResumptionVerdict {
  if (isEventStream(answer)) return 'stream';
  const { status } = answer;
  answer.close();
  if (status === 401 || status === 403) return 'key_refused';
  if (status === 429) return 'asked_to_wait';
  return UNAVAILABLE.has(status) ? 'unavailable' : 'over';
}
