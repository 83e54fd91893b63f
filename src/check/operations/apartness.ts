import { describeAnswer, problemOf } from '../judge-answer.ts';
import type { Answer } from '../through-client.ts';
import type { Apartness } from './group-probe.ts';
import { verdictOn } from './judge-operation.ts';

/**
 * Judges the answer to a second user who asks for the conversation of the first one, with `CHANNELS=scoped`: they ask for
 * a conversation of their own that does not exist.
 */
export function apartness(answer: Answer): Apartness {
  const says = describeAnswer(answer);
  const verdict = verdictOn(answer);
  if (verdict === 'not_yours') return { state: 'apart', says };
  // The bot service has refused what is the second user's own conversation.
  if (problemOf(answer)?.code === 'upstream_refused') return { state: 'apart', says };
  if (verdict === 'off' || verdict === 'wrong') return { state: 'unclear', says };
  if (verdict === 'unknown') return { state: 'apart', says };
  return { state: 'open', says };
}

/** The question had no answer; `error` has its code as its message. It must not end the others. */
export function unanswered(error: unknown): Apartness {
  return { state: 'unclear', says: error instanceof Error ? error.message : String(error) };
}
