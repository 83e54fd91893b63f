import { Problem } from '../../errors.ts';
import { readAtMost } from '../../http/body.ts';
import { isJson, replaceStrings } from '../../http/json.ts';
import { essenceOf, isJsonType, isUnencoded } from '../../http/media-type.ts';
import { bodyOf, type UpstreamAnswer } from '../upstream/answer-arrival.ts';
import { keysRefused } from '../upstream/message-keys.ts';
import { retryAfterSeconds } from '../upstream/upstream-problems.ts';

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
    upstreamStatus: status,
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
function isEventStream({ status, headers }: UpstreamAnswer): boolean {
  const essence = essenceOf(headers['content-type']);
  // The HTTP parser decodes no transfer coding but `chunked` (RFC 9112 §7).
  const framing = headers['transfer-encoding']?.trim().toLowerCase() ?? 'chunked';
  const hasBody = status >= 200 && status < 300 && status !== 204 && status !== 205;
  return hasBody && essence === 'text/event-stream' && isUnencoded(headers) && framing === 'chunked';
}

/**
 * What the response was instead of a stream, for the log; without texts that the service can choose freely. Secrets are
 * hidden before the type is shortened, since a part of one would not be found.
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
function readShort(response: UpstreamAnswer): Promise<Buffer | undefined> {
  return readAtMost(bodyOf(response), MAX_REFUSAL_BYTES).catch(() => undefined);
}

/**
 * The verdict of a message's answer, or the service's own JSON, which says that it has no such conversation or path. Only
 * the strings in it that `mask` changes differ from what the service has sent.
 */
export type LiveVerdict = MessageVerdict | { readonly kind: 'not_found'; readonly json: Buffer };

/**
 * Judges the answer to the request for a live stream like that to a message, except for 404: clients read it as a fact
 * about what they asked for, so that it counts only with JSON. Another 404, such as that of a proxy, is no answer.
 * @throws Problem `upstream_refused` or `upstream_bad_response`
 */
export async function judgeLive(
  answer: UpstreamAnswer,
  mask: (text: string) => string,
): Promise<LiveVerdict> {
  if (answer.status !== 404) return judgeResponse(answer, mask);
  const { headers } = answer;
  const mayBeJson = isJsonType(headers['content-type']) && isUnencoded(headers);
  const bytes = mayBeJson ? await readShort(answer) : undefined;
  if (bytes && isJson(bytes)) return { kind: 'not_found', json: replaceStrings(bytes, mask) };
  answer.close();
  const detail = 'The bot service did not answer with an event stream.';
  throw new Problem('upstream_bad_response', detail, { cause: 'status 404, no JSON', upstreamStatus: 404 });
}

/**
 * What became of a resumption. `unavailable`: the service cannot be reached behind its proxy (502, 503, 504). `over`: there
 * is nothing to resume.
 */
type ResumptionVerdict = 'stream' | 'key_refused' | 'asked_to_wait' | 'unavailable' | 'over';

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

/** Applies `mask` to all strings and names in `value`. Use it after parsing, when escape sequences are decoded. */
function maskStrings(value: unknown, mask: (text: string) => string): unknown {
  if (typeof value === 'string') return mask(value);
  if (Array.isArray(value)) return value.map((item) => maskStrings(item, mask));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [mask(name), maskStrings(inner, mask)]),
  );
}
