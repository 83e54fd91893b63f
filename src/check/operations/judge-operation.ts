import { describeAnswer, problemOf } from '../judge-answer.ts';
import type { Answer } from '../through-client.ts';

/**
 * What an answer to an operation says. `done`: 2xx of the bot service. `unknown`: its 404. `not_yours`: the relay
 * refuses the sandbox or the file. `off`: the group is not enabled. `wrong`: anything else.
 */
export type OperationVerdict = 'done' | 'unknown' | 'not_yours' | 'off' | 'wrong';

/** Judges an answer by its status, headers and body. */
export function verdictOn(answer: Pick<Answer, 'status' | 'headers' | 'text'>): OperationVerdict {
  const { status, headers } = answer;
  const code = problemOf(answer)?.code;
  if (code === 'operation_not_enabled') return 'off';
  if (code === 'not_your_conversation') return 'not_yours';
  // A page or a 404 of what stands in between is no word of the bot service.
  if (code !== undefined || headers['x-request-id'] === undefined) return 'wrong';
  if (status === 404) return isJson(headers['content-type']) ? 'unknown' : 'wrong';
  return status >= 200 && status < 300 ? 'done' : 'wrong';
}

/** Problems that say nothing about the operation: the request did not get that far. */
const NOT_REACHED = new Set(['unknown_bot', 'not_found', 'method_not_allowed', 'unauthenticated']);

/** Whether the relay has answered, and knows this operation of this bot, be it on or off. */
export function isReached(answer: Answer): boolean {
  const code = problemOf(answer)?.code;
  return code === undefined ? verdictOn(answer) !== 'wrong' : !NOT_REACHED.has(code);
}

/** What to do about an answer that is not the expected one. */
export function adviceOn(answer: Answer): string {
  switch (problemOf(answer)?.code) {
    case undefined:
      if (verdictOn(answer) === 'unknown')
        return 'The bot service says that it does not have this: ask those who run it.';
      if (answer.status === 502 || answer.status === 504)
        return 'Let the load balancer wait longer for an answer: the bot service may take 60 seconds to remove a conversation.';
      return 'This is no answer of the relay: let the load balancer hand every path below /ns/ and /generic/ to it, with every method.';
    case 'operation_not_enabled':
      return 'The running relay has other OPERATIONS, or another BOTS_FILE, than this configuration: restart it.';
    case 'unknown_bot':
      return 'The running relay has other BOTS than this configuration: restart it.';
    case 'upstream_refused':
    case 'upstream_bad_response':
      return 'The bot service may not have this operation, have it in another form, or not let the key use it: ask those who run it, or take the group out of OPERATIONS.';
    case 'upstream_key_rejected':
      return 'The running relay has other keys than this configuration: restart it, or send it SIGHUP.';
    case 'rate_limited':
    case 'upstream_rate_limited':
      return 'The bot is busy: try again.';
    default:
      return 'Look for this request in the log of the relay.';
  }
}

/** Describes an answer; of a refusal of the bot service, also what it says. */
export function describe(answer: Answer): string {
  const upstream = upstreamOf(answer);
  return `${describeAnswer(answer)}${upstream === undefined ? '' : `: ${JSON.stringify(upstream)}`}`;
}

function upstreamOf(answer: Answer): unknown {
  if (problemOf(answer)?.code !== 'upstream_refused') return undefined;
  return (JSON.parse(answer.text) as { upstream?: unknown }).upstream;
}

/** The JSON of an answer; `undefined` if it is none. */
export function jsonOf({ text }: Pick<Answer, 'text'>): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The strings that the member `name` has, wherever it stands in `json`. */
export function stringsNamed(json: unknown, name: string): string[] {
  if (typeof json !== 'object' || json === null) return [];
  return Object.entries(json).flatMap(([key, value]) =>
    key === name && typeof value === 'string' ? [value] : stringsNamed(value, name),
  );
}

/** The values that the member `name` has, wherever it stands in `json`. */
export function valuesNamed(json: unknown, name: string): unknown[] {
  if (typeof json !== 'object' || json === null) return [];
  return Object.entries(json).flatMap(([key, value]) => (key === name ? [value] : valuesNamed(value, name)));
}

function isJson(type = ''): boolean {
  return /^application\/([\w.-]+\+)?json\b/i.test(type);
}
