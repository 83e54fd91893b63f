import { type Rate, type Start, TRIAL_MS } from './budgets.ts';
import { type Endpoint, US_PER_MS } from './memory-endpoints.ts';

/** Whether `ticket` is the message on trial, or one more request for it. */
export function isOnTrial({ trial }: Endpoint, ticket: string): boolean {
  return trial !== undefined && ticket.startsWith(trial.ticket);
}

/** How long until the trial of another message than that of `ticket` is over, in µs; 0 if there is none. */
export function otherTrial(endpoint: Endpoint, ticket: string, at: number): number {
  const { trial } = endpoint;
  return trial && !isOnTrial(endpoint, ticket) ? Math.max(0, trial.until - at) : 0;
}

/** A message that has a slot. Times in µs. */
interface WithSlot {
  readonly ticket: string;
  readonly slotAt: number;
  /** The time now. */
  readonly at: number;
}

/** The answer for a message with a slot; it goes on trial if it goes now and must. */
export function startAt(endpoint: Endpoint, { ticket, slotAt, at }: WithSlot, { trialMs }: Rate): Start {
  const onTrial = slotAt <= at && endpoint.askedUntil > at;
  if (onTrial) {
    const until = Math.min(at + (trialMs ?? TRIAL_MS) * US_PER_MS, endpoint.askedUntil);
    endpoint.trial = { ticket, until };
  }
  const judgedMs = otherTrial(endpoint, ticket, at) / US_PER_MS;
  return { waitMs: (slotAt - at) / US_PER_MS, judgedMs, onTrial };
}
