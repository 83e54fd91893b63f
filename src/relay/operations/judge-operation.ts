import type { IncomingMessage } from 'node:http';
import { Problem } from '../../errors.ts';
import { maskStrings } from '../upstream/mask-json.ts';
import { retryAfterSeconds } from '../upstream/retry-after.ts';

/** What goes down to the client. */
export interface OperationAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON; empty if the service has said nothing. */
  readonly body: string;
}

const MAX_ANSWER_BYTES = 65_536;
const JSON_TYPE = /^application\/(?:[a-z0-9.-]+\+)?json$/;

/**
 * Says what an answer of the bot service to an operation is: what goes down to the client, or `key_refused`. The
 * answer is used up. `mask` hides secrets in what the service says.
 * @throws Problem `upstream_rate_limited`, `upstream_bad_response` or `upstream_unreachable`; never a status of the
 * service's own but 2xx and 404, which are facts
 */
export async function judgeOperation(
  answer: IncomingMessage,
  mask: (text: string) => string,
): Promise<OperationAnswer | 'key_refused'> {
  const { statusCode: status = 0, headers } = answer;
  if (isFact(status) && isPlain(answer)) return passOn(answer, mask);
  answer.destroy();
  if (status === 401 || status === 403) return 'key_refused';
  if (status === 429) {
    throw new Problem(
      'upstream_rate_limited',
      'The bot service takes no more requests right now; try again.',
      { retryAfter: retryAfterSeconds(headers['retry-after'], Date.now()) },
    );
  }
  throw badResponse(`status ${status}${isPlain(answer) ? '' : ', encoded'}`);
}

function isFact(status: number): boolean {
  return (status >= 200 && status < 300) || status === 404;
}

function isPlain({ headers }: IncomingMessage): boolean {
  return (headers['content-encoding']?.trim().toLowerCase() ?? 'identity') === 'identity';
}

/** Whoever stands before the service can answer 404 too, but not with JSON or with nothing. */
async function passOn(answer: IncomingMessage, mask: (text: string) => string): Promise<OperationAnswer> {
  const { statusCode: status = 0, headers } = answer;
  const text = await bodyOf(answer);
  const type = headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (text !== '' && !JSON_TYPE.test(type)) throw badResponse(`status ${status}, no JSON`);
  const body = text === '' ? '' : maskedJson(text, mask);
  const trace = headers['x-trace-id'];
  return {
    status,
    headers: {
      ...(body !== '' && { 'Content-Type': mask(type) === type ? type : 'application/json' }),
      ...(typeof trace === 'string' && mask(trace) === trace && { 'X-Trace-Id': trace }),
    },
    body,
  };
}

/** Written anew from what was read, so that no secret hides in an escape sequence or in a name that comes twice. */
function maskedJson(text: string, mask: (text: string) => string): string {
  try {
    return JSON.stringify(maskStrings(JSON.parse(text), mask));
  } catch {
    throw badResponse('no JSON');
  }
}

async function bodyOf(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > MAX_ANSWER_BYTES) throw badResponse('too large');
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem('upstream_unreachable', 'The answer of the bot service broke off.', {
      cause: (error as NodeJS.ErrnoException).code ?? 'ECONNRESET',
    });
  }
  return Buffer.concat(chunks, length).toString('utf8');
}

function badResponse(cause: string): Problem {
  return new Problem('upstream_bad_response', 'The bot service did not answer as it should.', { cause });
}
