import type { SlotRequest } from './budgets.ts';
import { createQueues } from './queues.ts';

/** A message that waits for its endpoint in the queue of its user, and then in that of its address, if it has one. */
export type QueueRequest = Pick<SlotRequest, 'endpoint' | 'holders'>;

/**
 * Enters the queues of all holders and waits until the message is the first in each. Resolves with the function that
 * leaves them, or with undefined if the message gets no slot in time: a queue is full, or `deadline` has passed, which
 * is by `performance.now()` in ms and may be infinite. Rejects with the signal's reason if that aborts.
 */
export type EnterQueues = (
  request: QueueRequest,
  deadline: number,
  signal: AbortSignal,
) => Promise<(() => void) | undefined>;

/** How much longer than its deadline a message may wait behind others that wait for the budget's answer, in ms. */
const ANSWERS_MS = 500;

/** A queue for each holder at each endpoint, with at most `maxLength` messages. */
export function holderQueues(maxLength: (endpoint: string) => number): EnterQueues {
  const queues = createQueues();
  return async function enter({ endpoint, holders }, deadline, signal) {
    const entered: (() => void)[] = [];
    const leave = () => {
      for (const leaveOne of entered) leaveOne();
    };
    try {
      for (const [n, holder] of holders.entries()) {
        const queue = `${holder} ${endpoint}`;
        if (queues.length(queue) >= maxLength(endpoint)) return void leave();
        // The user's queue needs no timeout: all messages in front are older, so their deadlines pass earlier.
        entered.push(await queues.enter(queue, n > 0 ? abortAfter(deadline, signal) : signal));
      }
      return leave;
    } catch (error) {
      leave();
      if (signal.aborted) throw error;
      // The only other reason is the timeout of the address's queue: the deadline has passed.
      return undefined;
    }
  };
}

/**
 * Aborts with `signal`, or soon after `deadline`: in the address's queue, a message with a later deadline may be in
 * front of this one. The extra time is for the budget's answers to the messages in front.
 */
function abortAfter(deadline: number, signal: AbortSignal): AbortSignal {
  if (deadline === Number.POSITIVE_INFINITY) return signal;
  const leftMs = Math.ceil(Math.max(0, deadline - performance.now()) + ANSWERS_MS);
  return AbortSignal.any([signal, AbortSignal.timeout(leftMs)]);
}
