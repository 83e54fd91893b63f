import type { RequestHandler, Response } from 'express';
import { Problem } from '../errors.ts';
import type { Bot, Holders } from '../http/locals.ts';
import { JITTER_MS, limitFor } from './budgets.ts';
import type { PacedRate, SlotWaits, Turn } from './slot-waits.ts';

/**
 * Waits for a slot of the bot's budget, or refuses the message at once if none comes in time. Stands last in the
 * guard, so that a message which is refused for another reason spends nothing. Sends `RateLimit` and
 * `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-08), and `Retry-After` with a refusal.
 * @throws Problem `rate_limited`
 */
export function endpointBudget(slots: Pick<SlotWaits, 'take'>, rate: PacedRate): RequestHandler {
  return async function endpointBudget(_req, res, next) {
    const { namespace, botProviderName } = res.locals.bot as Bot;
    const { user, address } = res.locals.holders as Holders;
    const { signal } = res.locals.stop as AbortController;
    const askedAt = performance.now();
    const wish = {
      endpoint: `${namespace}/${botProviderName}`,
      holders: address === undefined ? [user] : [user, address],
    };
    let turn: Turn;
    try {
      turn = await slots.take(wish, signal);
    } catch (error) {
      // Nobody is left to answer.
      if (res.closed) return;
      throw error;
    } finally {
      res.locals.slotWaitMs = performance.now() - askedAt;
    }
    const { remaining, resetMs, waitMs } = turn.reservation;
    const limit = limitFor(rate, wish.endpoint);
    res.setHeader('RateLimit-Policy', `"endpoint";q=${limit};w=${seconds(rate.windowMs)}`);
    // Without what the relay adds: a client is told of the service's own window.
    const reset = seconds(Math.max(0, resetMs - JITTER_MS));
    res.setHeader('RateLimit', `"endpoint";r=${remaining};t=${reset}`);
    if (!turn.slot) {
      throw tooMany(seconds(waitMs));
    }
    res.locals.slot = turn.slot;
    next();
  };
}

/** What the relay asks, and tells, of a message that has a slot; see `RelayOptions`. */
export const paced = (slots: SlotWaits) => ({
  waitAgain: waitAgain(slots),
  mayLeave: mayLeave(slots),
  noteJudged: noteJudged(slots),
  noteSent: noteSent(slots),
  waitForNextKey: oneMoreSlot(slots),
});

/** What the relay asks when the bot service has refused a message with 429. */
type WaitAgain = (res: Response, refusal: Problem) => Promise<void>;

/**
 * Waits until a message that the service has refused may be sent again: as long as the service asked, but a minute at
 * most; nothing goes to that bot before then. Rejects with the refusal, and with how long that takes, if the message
 * may not wait so long.
 */
function waitAgain(slots: SlotWaits): WaitAgain {
  return async function waitAgain({ locals }, refusal) {
    const { slot, stop } = locals;
    if (!slot || !stop) throw refusal;
    const askedAt = performance.now();
    const askedMs = (refusal.options.retryAfter ?? 1) * 1000;
    const tooLongMs = await slots.takeAgain(slot, askedMs, stop.signal);
    locals.slotWaitMs = (locals.slotWaitMs ?? 0) + performance.now() - askedAt;
    if (tooLongMs === 0) return;
    throw new Problem(refusal.code, refusal.message, { ...refusal.options, retryAfter: seconds(tooLongMs) });
  };
}

/**
 * What the relay asks when a message, or a further attempt at it, has its connection to the bot service: one that
 * was held up meanwhile waits until it may leave.
 * @throws Problem `rate_limited` if it may not wait so long
 */
function mayLeave(slots: SlotWaits): (res: Response) => Promise<void> {
  return async function mayLeave({ locals: { slot, stop } }) {
    if (!slot || !stop) return;
    const tooLongMs = await slots.leave(slot, stop.signal);
    if (tooLongMs > 0) throw tooMany(seconds(tooLongMs));
  };
}

/** What the relay calls when a message, or a further attempt at it, has left for the bot service. */
function noteSent(slots: SlotWaits): (res: Response) => void {
  return ({ locals }) => {
    if (locals.slot) slots.sent(locals.slot);
  };
}

/** What the relay calls when the service has accepted a message, or when it is clear that it does not. */
function noteJudged(slots: SlotWaits): (res: Response, accepted: boolean) => void {
  return ({ locals }, accepted) => {
    if (locals.slot) slots.judged(locals.slot, accepted);
  };
}

/**
 * Waits until a message may be sent once more because the service has refused its key: that request has reached
 * the service as well, so that both count.
 * @throws Problem `rate_limited`
 */
function oneMoreSlot(slots: SlotWaits): (res: Response) => Promise<void> {
  return async function oneMoreSlot({ locals }) {
    const { slot, stop } = locals;
    if (!slot || !stop) return;
    const askedAt = performance.now();
    const more = await slots.takeOneMore(slot, stop.signal);
    locals.slotWaitMs = (locals.slotWaitMs ?? 0) + performance.now() - askedAt;
    if (typeof more === 'number') throw tooMany(seconds(more));
    locals.slot = more;
  };
}

function tooMany(retryAfter: number): Problem {
  return new Problem('rate_limited', 'This bot gets as many messages as it takes right now; try again.', {
    retryAfter,
  });
}

/** Whole seconds, rounded up: a client that waits so long is never too early. */
function seconds(ms: number): number {
  return Math.ceil(ms / 1000);
}
