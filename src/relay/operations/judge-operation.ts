import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { Problem } from '../../errors.ts';
import { readAtMost } from '../../http/body.ts';
import { isJson, replaceStrings } from '../../http/json.ts';
import { essenceOf, isJsonType, isUnencoded } from '../../http/media-type.ts';
import { keysRefused } from '../upstream/message-keys.ts';
import { retryAfterSeconds } from '../upstream/upstream-problems.ts';
import { fileHeaders } from './file-headers.ts';

/** The answer for the client. */
export interface OperationAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON; empty if the service sent no body. */
  readonly body: Buffer;
  /** A file instead of `body`, which is not read yet. The caller must read or close it. */
  readonly file?: IncomingMessage;
}

export interface JudgeOptions {
  /** The largest body that is passed on, in bytes. */
  readonly maxBytes: number;
  /** Whether status 200 or 206 is a file. */
  readonly givesFile?: boolean | undefined;
  /** Hides secrets in a text of the service, and names the conversation as the client does. */
  readonly mask: (text: string) => string;
}

/**
 * Statuses with which the bot service says that the request itself is wrong. 404 is a fact that clients need as it is.
 */
const REFUSALS = new Set([400, 409, 413, 415, 422]);
const NO_SUCH_RANGE = 416;
const FILES = new Set([200, 206]);
const MAX_REFUSAL_BYTES = 8192;

/**
 * Judges an answer of the bot service to an operation: returns the answer for the client, or the problem of 401 or 403.
 * The answer is read or closed here, unless it is a file. Only 2xx and 404 are passed on, since they say what became of
 * the operation; every other status becomes a problem. Of JSON, only strings that `mask` changes differ from what the
 * service has sent.
 * @throws Problem `upstream_refused`, `upstream_rate_limited`, `upstream_bad_response` or `upstream_unreachable`
 */
export async function judgeOperation(
  answer: IncomingMessage,
  options: JudgeOptions,
): Promise<OperationAnswer | Problem> {
  const { statusCode: status = 0, headers } = answer;
  if (options.givesFile && FILES.has(status) && isUnencoded(headers)) return passFile(answer, options.mask);
  if (isPassedOn(status) && isUnencoded(headers)) return passOn(answer, options);
  if (REFUSALS.has(status) || (options.givesFile && status === NO_SUCH_RANGE))
    throw await refusal(answer, options.mask);
  if (status === 403) return refusal(answer, options.mask);
  answer.destroy();
  if (status === 401) return keysRefused();
  if (status === 429) throw rateLimited(headers['retry-after']);
  throw badResponse(`status ${status}${isUnencoded(headers) ? '' : ', encoded'}`);
}

function isPassedOn(status: number): boolean {
  return (status >= 200 && status < 300) || status === 404;
}

/** Passes on JSON, or 2xx without a body: anything else, such as the 404 of a proxy, is not from the service. */
async function passOn(answer: IncomingMessage, { maxBytes, mask }: JudgeOptions): Promise<OperationAnswer> {
  const { statusCode: status = 0, headers } = answer;
  const bytes = await read(answer, maxBytes);
  const given = headers['content-type'] ?? '';
  const type = essenceOf(given);
  const isEmpty = bytes.length === 0 && status !== 404;
  if (!isEmpty && !isJsonType(type)) throw badResponse(`status ${status}, no JSON`);
  if (!isEmpty && !isJson(bytes)) throw badResponse('no JSON');
  return {
    status,
    headers: {
      ...(!isEmpty && { 'Content-Type': mask(given) === given ? type : 'application/json' }),
      ...namedHeaders(headers, mask),
    },
    body: replaceStrings(bytes, mask),
  };
}

function passFile(answer: IncomingMessage, mask: (text: string) => string): OperationAnswer {
  const { statusCode: status = 0, headers } = answer;
  const named = namedHeaders(headers, mask);
  return {
    status,
    headers: { ...named, ...fileHeaders(headers, mask) },
    body: Buffer.alloc(0),
    file: answer,
  };
}

/** The headers of the service's own that every answer may have. */
const NAMED_HEADERS = { 'X-Trace-Id': /^.+$/, 'X-Total-Bytes': /^\d{1,15}$/, 'X-Truncated': /^\w{1,20}$/ };

function namedHeaders(headers: IncomingHttpHeaders, mask: (text: string) => string) {
  const given = Object.entries(NAMED_HEADERS).map(([name, pattern]) => {
    const value = headers[name.toLowerCase()];
    return typeof value === 'string' && pattern.test(value) && mask(value) === value ? { [name]: value } : {};
  });
  return Object.assign({}, ...given) as Record<string, string>;
}

/** The problem for a request that the service has refused, with the service's JSON if it is whole and short. */
async function refusal(answer: IncomingMessage, mask: (text: string) => string): Promise<Problem> {
  const { statusCode: status = 0 } = answer;
  const bytes = await read(answer, MAX_REFUSAL_BYTES).catch(() => undefined);
  return new Problem('upstream_refused', `The bot service refused the request with status ${status}.`, {
    status,
    ...(bytes && isJson(bytes) && { upstream: JSON.parse(String(replaceStrings(bytes, mask))) as unknown }),
  });
}

async function read(answer: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const bytes = await readAtMost(answer, maxBytes).catch((error: NodeJS.ErrnoException) => {
    throw new Problem('upstream_unreachable', 'The answer of the bot service broke off.', {
      cause: error.code ?? 'ECONNRESET',
    });
  });
  if (!bytes) throw badResponse('too large');
  return bytes;
}

/** The problem of a 429 with this `Retry-After`. */
export function rateLimited(retryAfter: string | undefined): Problem {
  return new Problem(
    'upstream_rate_limited',
    'The bot service takes no more requests right now; try again later.',
    { retryAfter: retryAfterSeconds(retryAfter, Date.now()) },
  );
}

/** The problem of an answer that is not as expected, for the reason `cause`. */
export function badResponse(cause: string): Problem {
  return new Problem('upstream_bad_response', 'The bot service did not answer as expected.', { cause });
}
