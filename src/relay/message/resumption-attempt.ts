import { causeOf } from '../../errors.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import { keyRefusal, type MessageKeys } from '../upstream/message-keys.ts';
import type { ResumptionOutcome } from '../upstream/relay-observer.ts';
import type { Upstream, UpstreamRequest } from '../upstream/send.ts';
import { retryAfterSeconds } from '../upstream/upstream-problems.ts';
import { withKey } from '../upstream/upstream-request.ts';
import { NO_ANSWER } from './deadlines.ts';
import { judgeResumption } from './judge-response.ts';

/** After a 429, the next attempt waits for the service's `Retry-After`, but at most this long, in ms. */
const MAX_ASKED_MS = 60_000;

/**
 * The slot of one attempt, whose time has come. Each wait ends only with the attempt's signal, whose reason it rejects
 * with; each method rejects with Problem `session_store_unavailable` if the budget is out of reach.
 */
export interface ResumptionTurn {
  /** Waits until an attempt that was delayed may be sent. */
  renewSlot(): Promise<void>;
  /** Call it each time the request was sent. */
  sent(): void;
  /** Waits until an attempt whose key was refused may be sent with the next key. */
  takeExtraSlot(): Promise<void>;
  /**
   * The service has answered 429: pauses the endpoint for `askedMs`, at most a minute. The next attempt takes a new
   * turn.
   */
  refused(askedMs: number): Promise<void>;
}

export interface AttemptOptions {
  /** Without a key. */
  readonly request: UpstreamRequest;
  /** Waits for a slot; only the signal limits the wait. */
  readonly turn: (signal: AbortSignal) => Promise<ResumptionTurn>;
  /** The present keys: those of the message may have been replaced. */
  readonly keys: () => MessageKeys;
  /** The sender for the key of this fingerprint. */
  readonly send: (fingerprint: string) => Upstream['send'];
  readonly responseTimeoutMs: number;
}

export interface Attempt {
  readonly lastEventId: string;
  /** Called each time the request was written. */
  readonly onSent: () => void;
  readonly signal: AbortSignal;
}

/** The result of an attempt: the stream, or what happened instead. */
export type Attempted =
  | { readonly answer: UpstreamAnswer }
  | {
      readonly outcome: ResumptionOutcome;
      readonly cause: string;
      /** No other attempt can succeed. */
      readonly isFinal?: boolean;
      /** For how long the service wants no other attempt, in ms. */
      readonly askedMs?: number;
    };

/**
 * Tries once to resume a stream: waits for a slot and sends the message with `Last-Event-ID`, with one key after the
 * other as long as `MessageKeys` has one. Rejects with nothing but the signal's reason.
 */
export async function attemptResumption(options: AttemptOptions, attempt: Attempt): Promise<Attempted> {
  const { signal } = attempt;
  try {
    return await sendWithKeys(options, attempt, await options.turn(signal));
  } catch (error) {
    signal.throwIfAborted();
    return { outcome: error === NO_ANSWER ? 'timeout' : 'unreachable', cause: causeOf(error) };
  }
}

async function sendWithKeys(
  options: AttemptOptions,
  attempt: Attempt,
  turn: ResumptionTurn,
): Promise<Attempted> {
  const keys = options.keys();
  for (;;) {
    const answer = await sendOnce(options, attempt, { turn, keys });
    const cause = `status ${answer.status}`;
    switch (judgeResumption(answer)) {
      case 'stream':
        keys.accepted();
        return { answer };
      case 'key_refused':
        if (!keys.refused(keyRefusal(answer.status))) {
          await turn.takeExtraSlot();
          continue;
        }
        return { outcome: 'key_rejected', cause, isFinal: true };
      case 'asked_to_wait': {
        const askedMs = 1000 * retryAfterSeconds(answer.headers['retry-after'], Date.now());
        await turn.refused(askedMs);
        return { outcome: 'rate_limited', cause, askedMs: Math.min(askedMs, MAX_ASKED_MS) };
      }
      case 'unavailable':
        return { outcome: 'unavailable', cause };
      default:
        return { outcome: 'over', cause, isFinal: true };
    }
  }
}

/** Sends the request once. @throws NO_ANSWER, if there is no answer in time; the signal's reason; Problem */
async function sendOnce(
  { request, send, responseTimeoutMs }: AttemptOptions,
  { lastEventId, onSent, signal }: Attempt,
  { turn, keys }: { readonly turn: ResumptionTurn; readonly keys: MessageKeys },
): Promise<UpstreamAnswer> {
  const key = keys.next();
  const late = new AbortController();
  const startTimer = () => setTimeout(() => late.abort(NO_ANSWER), responseTimeoutMs);
  let timer = startTimer();
  try {
    const headers = { ...request.headers, 'last-event-id': lastEventId };
    return await send(key.fingerprint)(withKey({ ...request, headers }, key), {
      signal: AbortSignal.any([signal, late.signal]),
      async onDelayed() {
        clearTimeout(timer);
        await turn.renewSlot();
        timer = startTimer();
      },
      onSent() {
        onSent();
        turn.sent();
      },
    });
  } finally {
    clearTimeout(timer);
  }
}
