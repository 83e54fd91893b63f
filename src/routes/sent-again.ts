import type { Problem } from '../errors.ts';
import type { Refusal } from '../relay/message/judge-response.ts';
import type { Sending } from './message-steps.ts';

/** Waits until a message may be sent again. @throws the problem, or another one, if it may not */
export type WaitToSendAgain = (problem: Problem, sending: Sending) => Promise<void>;

/** The refusals after which a message is sent again: the service has certainly not begun to run it. */
export const SENT_AGAIN: Readonly<Record<Refusal['kind'], WaitToSendAgain>> = {
  async key_refused(problem, { keys, pacing }) {
    if (!keys.refused()) throw problem;
    await pacing.takeExtraSlot();
  },
  asked_to_wait: (problem, { pacing }) => pacing.waitAfterRefusal(problem),
};
