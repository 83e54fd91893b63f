import { Problem } from '../../errors.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import { bodyOf } from '../upstream/answer-body.ts';
import { maskStrings } from '../upstream/mask-json.ts';
import { keysRefused } from '../upstream/message-keys.ts';
import { retryAfterSeconds } from '../upstream/retry-after.ts';

/** Statuses by which the bot service says that the message itself is at fault. */
const REFUSALS = new Set([400, 404, 409, 413, 415, 422]);
const MAX_REFUSAL_BYTES = 8192;

/**
 * What a response of the bot service is: a stream that can be carried to the client, or the refusal of a message that
 * has not begun to run, because of its key or because it has to wait. `problem` is what the client is told if the
 * message is not sent again.
 */
export type Verdict = { readonly kind: 'stream' } | Refusal;

export interface Refusal {
  readonly kind: 'key_refused' | 'asked_to_wait';
  readonly problem: Problem;
}

/**
 * Says what a response of the bot service is. The response is used up unless it is a stream.
 * `mask` hides secrets in what the service says.
 * @throws Problem `upstream_refused` or `upstream_bad_response`
 */
export async function judgeResponse(
  response: UpstreamAnswer,
  mask: (text: string) => string,
): Promise<Verdict> {
  const { status } = response;
  if (isEventStream(response)) return { kind: 'stream' };
  if (REFUSALS.has(status)) {
    const upstream = await readJson(response, mask);
    throw new Problem('upstream_refused', `The bot service refused the message with status ${status}.`, {
      status,
      ...(upstream === undefined ? {} : { upstream }),
    });
  }
  response.close();
  if (status === 401 || status === 403) return { kind: 'key_refused', problem: keysRefused() };
  if (status === 429) {
    const retryAfter = retryAfterSeconds(response.headers['retry-after'], Date.now());
    const detail = 'The bot service takes no more messages right now; try again.';
    return { kind: 'asked_to_wait', problem: new Problem('upstream_rate_limited', detail, { retryAfter }) };
  }
  throw new Problem('upstream_bad_response', 'The bot service did not answer with an event stream.', {
    cause: mask(describe(response)),
  });
}

/** A 2xx answer whose body is plain `text/event-stream`, with whatever parameters (RFC 9110 §8.3.1), in no coding. */
function isEventStream({ status, headers }: UpstreamAnswer): boolean {
  const essence = headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase();
  const encoding = headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  // A transfer coding other than `chunked` is not undone for us (RFC 9112 §7).
  const framing = headers['transfer-encoding']?.trim().toLowerCase() ?? 'chunked';
  const hasBody = status >= 200 && status < 300 && status !== 204 && status !== 205;
  return hasBody && essence === 'text/event-stream' && encoding === 'identity' && framing === 'chunked';
}

/** What came instead of a stream, for the log; nothing of it that the service could choose freely. */
function describe({ status, headers }: UpstreamAnswer): string {
  const type = /^[a-z]+\/[a-z0-9.+-]{1,40}/i.exec(headers['content-type'] ?? '')?.[0] ?? 'no type';
  return `status ${status}, ${type}${headers['content-encoding'] ? ', encoded' : ''}`;
}

/** The JSON body of a refusal; `undefined` if it is something else, too long or broken off. */
async function readJson(response: UpstreamAnswer, mask: (text: string) => string): Promise<unknown> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of bodyOf(response) as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > MAX_REFUSAL_BYTES) return undefined;
      chunks.push(chunk);
    }
    return maskStrings(JSON.parse(Buffer.concat(chunks).toString('utf8')), mask);
  } catch {
    return undefined;
  }
}
