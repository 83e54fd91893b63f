import { Problem } from '../../errors.ts';
import { readAtMost } from '../../http/body.ts';
import { essenceOf, isUnencoded } from '../../http/media-type.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import { bodyOf } from '../upstream/answer-body.ts';
import { maskStrings } from '../upstream/mask-json.ts';
import { keysRefused } from '../upstream/message-keys.ts';
import { retryAfterSeconds } from '../upstream/retry-after.ts';

/** Statuses with which the bot service says that the message itself is wrong. */
const REFUSALS = new Set([400, 404, 409, 413, 415, 422]);
const MAX_REFUSAL_BYTES = 8192;

/**
 * The result of judging a response: a stream that can be carried to the client, or the refusal of a message that has
 * not begun to run, because of its key or because it has to wait. The client gets `problem` if the message is not sent
 * again.
 */
export type MessageVerdict = { readonly kind: 'stream' } | Refusal;

export interface Refusal {
  /** `key_refused` by 401; or maybe by 403, which the problem's status says. */
  readonly kind: 'key_refused' | 'asked_to_wait';
  readonly problem: Problem;
}

/**
 * Judges a response of the bot service. Unless it is a stream, the response is read or closed here. `mask` hides secrets
 * in texts of the service.
 * @throws Problem `upstream_refused` or `upstream_bad_response`
 */
export async function judgeResponse(
  response: UpstreamAnswer,
  mask: (text: string) => string,
): Promise<MessageVerdict> {
  return isEventStream(response) ? { kind: 'stream' } : judgeRefusal(response, mask);
}

async function judgeRefusal(response: UpstreamAnswer, mask: (text: string) => string): Promise<Refusal> {
  const { status } = response;
  if (REFUSALS.has(status)) throw await refusal(response, mask);
  if (status === 403) return { kind: 'key_refused', problem: await refusal(response, mask) };
  response.close();
  if (status === 401) return { kind: 'key_refused', problem: keysRefused() };
  if (status === 429) {
    const retryAfter = retryAfterSeconds(response.headers['retry-after'], Date.now());
    const detail = 'The bot service takes no more messages right now; try again later.';
    return { kind: 'asked_to_wait', problem: new Problem('upstream_rate_limited', detail, { retryAfter }) };
  }
  throw new Problem('upstream_bad_response', 'The bot service did not answer with an event stream.', {
    cause: describe(response, mask),
  });
}

/** The problem of a message that the service has refused, with the service's JSON if it is whole and short. */
async function refusal(response: UpstreamAnswer, mask: (text: string) => string): Promise<Problem> {
  const { status } = response;
  const upstream = await readShortJson(response, mask);
  return new Problem('upstream_refused', `The bot service refused the message with status ${status}.`, {
    status,
    ...(upstream === undefined ? {} : { upstream }),
  });
}

/** Whether it is a 2xx answer with an unencoded `text/event-stream`, with any parameters (RFC 9110 §8.3.1). */
export function isEventStream({ status, headers }: UpstreamAnswer): boolean {
  const essence = essenceOf(headers['content-type']);
  // The HTTP parser decodes no transfer coding but `chunked` (RFC 9112 §7).
  const framing = headers['transfer-encoding']?.trim().toLowerCase() ?? 'chunked';
  const hasBody = status >= 200 && status < 300 && status !== 204 && status !== 205;
  return hasBody && essence === 'text/event-stream' && isUnencoded(headers) && framing === 'chunked';
}

/**
 * What the response was instead of a stream, for the log; without texts that the service can choose freely. A secret is
 * hidden before the type is cut, since a part of it would not be found.
 */
function describe({ status, headers }: UpstreamAnswer, mask: (text: string) => string): string {
  const type = /^[a-z]+\/[a-z0-9.+[\]-]{1,40}/i.exec(mask(headers['content-type'] ?? ''))?.[0] ?? 'no type';
  return `status ${status}, ${type}${headers['content-encoding'] ? ', encoded' : ''}`;
}

/** The JSON body of a response; `undefined` if it is something else, longer than 8 KiB or broken off. */
async function readShortJson(response: UpstreamAnswer, mask: (text: string) => string): Promise<unknown> {
  const bytes = await readShort(response);
  try {
    return bytes && maskStrings(JSON.parse(bytes.toString('utf8')), mask);
  } catch {
    return undefined;
  }
}

/** The body of a response; `undefined` if it is longer than 8 KiB or broken off. */
export function readShort(response: UpstreamAnswer): Promise<Buffer | undefined> {
  return readAtMost(bodyOf(response), MAX_REFUSAL_BYTES).catch(() => undefined);
}
