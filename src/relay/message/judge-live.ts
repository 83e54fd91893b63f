import { Problem } from '../../errors.ts';
import { isJson, replaceStrings } from '../../http/json.ts';
import { isJsonType, isUnencoded } from '../../http/media-type.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import { judgeResponse, type MessageVerdict, readShort } from './judge-response.ts';

/**
 * The verdict of a message's answer, or the service's own JSON, which says that it has no such conversation or path. Of
 * its bytes, only strings that `mask` changes are others.
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
  throw new Problem('upstream_bad_response', detail, { cause: 'status 404, no JSON' });
}
