import { botPath } from '../bots/bot.ts';
import { OPERATIONS } from '../relay/operations/operation-table.ts';
import { adviceOnProblem } from './advice.ts';
import { type Answer, describeAnswer, problemOf } from './answers.ts';
import { botOf, type Conversation } from './conversation.ts';
import type { Call } from './http-client.ts';
import { problem, type Verdict } from './report.ts';
import type { ThroughContext } from './through-context.ts';
import { GRACE_MS } from './through-message.ts';

/** A request to an operation. */
export interface OperationCall {
  /** The operation, as `METHOD path` of the table of operations. */
  readonly line: string;
  /** The page's id of the conversation, for the query. */
  readonly conversation?: string;
  readonly query?: Readonly<Record<string, string>>;
  /** The name of the sandbox in the path. */
  readonly sandbox?: string;
  readonly body?: Call['body'];
}

/**
 * Calls an operation. Resolves with the whole answer.
 * @throws Error with a code as its message, if there is no answer
 */
export type CallOperation = (call: OperationCall) => Promise<Answer>;

/** A conversation of the check at one bot. */
export interface CheckedConversation extends ThroughContext {
  readonly bot: string;
  readonly conversation: Conversation;
  /** Calls operations as the first user. */
  readonly call: CallOperation;
  /** Calls operations as the second user, if there is one. */
  readonly other: CallOperation | undefined;
}

/** The operations of `bot` in the session of `cookie`, by the path that the newest clients use. */
export function operationsOf(context: ThroughContext, bot: string, cookie: string): CallOperation {
  const { base, client, config } = context;
  const prefix = botPath(base, '/ns', botOf(bot));
  return ({ line, conversation, query, sandbox = '', body }) => {
    const operation = OPERATIONS.find(({ method, path }) => `${method} ${path}` === line);
    if (!operation) throw new Error(`the table of operations has no ${line}`);
    const all = new URLSearchParams({ ...(conversation && { custom_channel_id: conversation }), ...query });
    const least = Math.max(operation.leastTimeoutMs ?? 0, config.upstream.responseTimeoutMs);
    return client.call({
      ...{ method: operation.method, cookie, body },
      path: `${prefix}/${operation.path.replace(':sandbox', sandbox)}${all.size > 0 ? `?${all}` : ''}`,
      headers: { 'Accept-Encoding': 'identity' },
      timeoutMs: least + GRACE_MS,
    });
  };
}

/**
 * What an answer to an operation says. `done`: 2xx of the bot service. `unknown`: its 404. `not_yours`: the relay
 * refuses what is another's. `off`: the group is not enabled. `wrong`: anything else.
 */
export type Outcome = 'done' | 'unknown' | 'not_yours' | 'off' | 'wrong';

/** Judges an answer. */
export function outcomeOf(answer: Answer): Outcome {
  const { status, headers } = answer;
  const code = problemOf(answer)?.code;
  if (code === 'operation_not_enabled') return 'off';
  if (code === 'not_your_conversation') return 'not_yours';
  // A page or a 404 of what stands in between is no word of the bot service.
  if (code !== undefined || headers['x-request-id'] === undefined) return 'wrong';
  const isJson = /^application\/([\w.-]+\+)?json\b/i.test(headers['content-type'] ?? '');
  if (status === 404) return isJson ? 'unknown' : 'wrong';
  return status >= 200 && status < 300 ? 'done' : 'wrong';
}

/** Whether the relay has answered, and knows this operation of this bot, be it on or off. */
export function isReached(answer: Answer): boolean {
  const code = problemOf(answer)?.code;
  if (code === undefined) return outcomeOf(answer) !== 'wrong';
  return !['unknown_bot', 'not_found', 'method_not_allowed', 'unauthenticated'].includes(code);
}

/** The problem of an answer that is not the expected one; of a refusal of the bot service, with what it says. */
export function wrong(answer: Answer, advice = adviceOn(answer)): Verdict {
  const { upstream } = problemOf(answer) ?? {};
  const said = upstream === undefined ? '' : `: ${JSON.stringify(upstream)}`;
  return problem(`answered with ${describeAnswer(answer)}${said}`, advice);
}

function adviceOn(answer: Answer): string {
  const none =
    outcomeOf(answer) === 'unknown'
      ? 'The bot service says that it does not have this: ask those who run it.'
      : answer.status === 502 || answer.status === 504
        ? 'Let the load balancer wait longer for an answer: the bot service may take 60 seconds to remove a conversation.'
        : 'This is no answer of the relay: let the load balancer hand every path below /ns/ and /generic/ to it, with every method.';
  const ofService =
    'The bot service may not have this operation, have it in another form, or not let the key use it: ask those who run it, or take the group out of OPERATIONS.';
  return adviceOnProblem(problemOf(answer)?.code, {
    ...{ none, upstream_refused: ofService, upstream_bad_response: ofService },
  });
}
