import { type Rate, type StartAnswer, TRIAL_MS } from './budgets.ts';
import { type Endpoint, US_PER_MS } from './memory-endpoints.ts';

/** Whether `ticket` is the message on trial, or an extra request of the same message. */
export function isOnTrial({ trial }: Endpoint, ticket: string): boolean {
  return trial !== undefined && ticket.startsWith(trial.ticket);
}

/** How long the trial of another message may still last, in µs; 0 if there is none. */
export function otherTrialLeft(endpoint: Endpoint, ticket: string, at: number): number {
  const { trial } = endpoint;
  return trial && !isOnTrial(endpoint, ticket) ? Math.max(0, trial.until - at) : 0;
}

/** A message that has a slot. Times in µs. */
interface MessageWithSlot {
  readonly ticket: string;
  readonly slotAt: number;
  /** The time now. */
  readonly at: number;
}

/** The answer for a message with a slot; puts it on trial if it starts during a pause that the service asked for. */
export function answerStart(
  endpoint: Endpoint,
  { ticket, slotAt, at }: MessageWithSlot,
  { trialMs }: Rate,
): StartAnswer {
  const onTrial = slotAt <= at && endpoint.askedUntil > at;
  if (onTrial) {
    const until = Math.min(at + (trialMs ?? TRIAL_MS) * US_PER_MS, endpoint.askedUntil);
    endpoint.trial = { ticket, until };
  }
  const trialLeftMs = otherTrialLeft(endpoint, ticket, at) / US_PER_MS;
  return { waitMs: (slotAt - at) / US_PER_MS, trialLeftMs, onTrial };
}
