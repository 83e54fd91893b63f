import type { IncomingHttpHeaders } from 'node:http';
import { type Bot, botName, type PathShape } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import { readAtMost } from '../http/body.ts';
import { isJson } from '../http/json.ts';
import { isJsonType, isUnencoded } from '../http/media-type.ts';
import type { Logger } from '../logger.ts';
import type { Holders } from '../pace/holders.ts';
import type { PacedMessage, Pacing } from '../pace/pacing.ts';
import type { AcceptedOperation, OperationRequest } from '../relay/operations/operation-request.ts';
import { endpointOf, maxAnswerBytesOf, type Operation } from '../relay/operations/operation-table.ts';
import { bodyOf, type UpstreamAnswer } from '../relay/upstream/answer-arrival.ts';
import type { KeyRings } from '../relay/upstream/key-rings.ts';
import { keyRefusal, messageKeys } from '../relay/upstream/message-keys.ts';
import { observedSend, type RelayObserver } from '../relay/upstream/relay-observer.ts';
import type { Upstream, UpstreamRequest } from '../relay/upstream/send.ts';
import { withKey } from '../relay/upstream/upstream-request.ts';

/** A request of the relay's own to the bot service, on behalf of a user. It has no body. */
export interface OwnRequest {
  /** A `GET` or `POST`. */
  readonly operation: Operation;
  readonly shape: PathShape;
  readonly bot: Bot;
  readonly query: URLSearchParams;
  readonly userId: string;
  readonly holders: Holders;
  /** Of the client's request, if it still waits; only `traceparent` goes upstream. */
  readonly headers?: IncomingHttpHeaders;
  readonly requestId: string;
  readonly signal: AbortSignal;
}

/** What the bot service has answered. */
export interface OwnAnswer {
  readonly status: number;
  /** The body, if it is whole, not too large, and JSON. */
  readonly json: Buffer | undefined;
  /** As the service has sent it. */
  readonly retryAfter: string | undefined;
}

/**
 * Waits for a slot in the budget of the operation's path, and sends the request with the next key until the service
 * answers other than by refusing the key. Rejects with the signal's reason if that aborts first.
 * @throws Problem `rate_limited`, `session_store_unavailable`, `upstream_key_rejected`, `upstream_refused`,
 *   `upstream_unreachable`, `upstream_bad_response` or `upstream_timeout`
 */
export type AskService = (request: OwnRequest) => Promise<OwnAnswer>;

export interface OwnRequestOptions {
  readonly paceMessage: (message: PacedMessage) => Pacing;
  readonly operationRequest: (accepted: AcceptedOperation) => OperationRequest;
  readonly keyRings: Pick<KeyRings, 'ringOf'>;
  readonly send: Upstream['send'];
  /** How long the service may take to answer, with each key, in ms. */
  readonly responseTimeoutMs: number;
  readonly observer: RelayObserver;
  readonly logger: Logger;
}

const NO_BODY = Buffer.alloc(0);

/** Requests are sent by the sender of messages, since the proxy needs a client's request and response. */
export function ownRequests(options: OwnRequestOptions): AskService {
  return async function ask(request) {
    const { operation, bot, holders, requestId, signal, headers: clientHeaders = {} } = request;
    const endpoint = endpointOf(operation, botName(bot));
    const pacing = options.paceMessage({ endpoint, holders, signal, log: {} });
    await pacing.start();
    const { path, headers } = options.operationRequest({
      ...request,
      ...{ headers: clientHeaders, body: undefined },
    });
    // `POST` is the sender's default.
    const method = operation.method === 'GET' ? operation.method : undefined;
    const unsigned: UpstreamRequest = { path, headers, method, body: NO_BODY };
    const keys = messageKeys(options.keyRings.ringOf(botName(bot)), options.logger, requestId);
    for (;;) {
      const key = keys.next();
      const send = observedSend(options.send, key.fingerprint, options.observer);
      const maxBytes = maxAnswerBytesOf(operation);
      const answer = await within(options.responseTimeoutMs, signal, async (limited) => {
        const events = { signal: limited, onDelayed: pacing.renewSlot, onSent: pacing.sent };
        return read(await send(withKey(unsigned, key), events), maxBytes, limited);
      });
      const { status, json } = answer;
      if (status !== 401 && status !== 403) {
        if (status < 300 || (status === 404 && json)) keys.accepted();
        return answer;
      }
      const failure = keys.refused(keyRefusal(status));
      if (failure) throw failure;
      await pacing.takeExtraSlot();
    }
  };
}

/**
 * Gives `work` a signal that aborts with `signal`, or after `ms`. Rejects with the reason of that signal if it aborts.
 */
async function within<T>(
  ms: number,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController();
  const timer = setTimeout(
    () => late.abort(new Problem('upstream_timeout', 'The bot service did not answer in time.')),
    ms,
  );
  const either = AbortSignal.any([signal, late.signal]);
  try {
    return await work(either);
  } catch (error) {
    // What the abort has broken may fail with another error.
    either.throwIfAborted();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Reads an answer of at most `maxBytes`, and closes a larger one. @throws Problem `upstream_unreachable` if it breaks
 * off
 */
async function read(answer: UpstreamAnswer, maxBytes: number, signal: AbortSignal): Promise<OwnAnswer> {
  const { status, headers } = answer;
  const close = () => answer.close();
  signal.addEventListener('abort', close, { once: true });
  // The signal may have aborted before the listener was added.
  if (signal.aborted) close();
  let bytes: Buffer | undefined;
  try {
    bytes = await readAtMost(bodyOf(answer), maxBytes);
  } catch (error) {
    const { code: cause = 'ECONNRESET' } = error as NodeJS.ErrnoException;
    throw new Problem('upstream_unreachable', 'The answer of the bot service broke off.', { cause });
  } finally {
    signal.removeEventListener('abort', close);
    signal.throwIfAborted();
  }
  const mayBeJson = isUnencoded(headers) && isJsonType(headers['content-type']);
  const json = bytes !== undefined && mayBeJson && isJson(bytes) ? bytes : undefined;
  return { status, json, retryAfter: headers['retry-after'] };
}
