import { botPath } from '../../bots/bot.ts';
import { OPERATIONS, type Operation } from '../../relay/operations/operation-table.ts';
import type { Conversation } from '../conversation.ts';
import type { Answer, Opened, ThroughCall } from '../through-client.ts';
import type { ThroughContext } from '../through-context.ts';
import { GRACE_MS } from '../through-message.ts';

/** What a request to an operation holds besides its path. */
export interface OperationCall {
  /** The page's id of the conversation, for the query. */
  readonly conversation?: string;
  readonly query?: Readonly<Record<string, string>>;
  /** The name of the sandbox in the path; some name if not given. */
  readonly sandbox?: string;
  /** The value of the header `Range`. */
  readonly range?: string;
  readonly body?: ThroughCall['body'];
  /** How long the answer may take to begin, in ms; longer than the relay allows if not given. */
  readonly timeoutMs?: number;
}

/** Calls operations of one bot through the load balancer, in the session of one user. */
export interface OperationSession extends Pick<ThroughContext, 'config' | 'report' | 'quote' | 'mask'> {
  /** `namespace/bot`. */
  readonly bot: string;
  /** The conversation that the first user has in this check. */
  readonly conversation: Conversation;
  /** Whether the second user may send a message with a file of the first one. */
  readonly sendsForeignFile: boolean;
  /** Called for every message that may have run. */
  readonly onSend: () => void;
  /**
   * Resolves with the whole answer to the operation `line`, which is `METHOD path` of the table.
   * @throws Error with a code as its message, if there is no answer
   */
  call(line: string, request?: OperationCall): Promise<Answer>;
  /** Resolves when the answer begins. @throws like `call` */
  open(line: string, request?: OperationCall): Promise<Opened>;
}

/** The operations of `bot` in the session of `cookie`. They go by the path that the newest clients use. */
export function operationSession(
  context: ThroughContext & { readonly bot: string },
  cookie: string,
  conversation: Conversation,
): OperationSession {
  const { base, bot, client, config } = context;
  const [namespace = '', botProviderName = ''] = bot.split('/');
  const prefix = botPath(base, '/ns', { namespace, botProviderName });
  const callFor = (line: string, request: OperationCall = {}): ThroughCall => {
    const operation = operationAt(line);
    const least = Math.max(operation.leastTimeoutMs ?? 0, config.upstream.responseTimeoutMs);
    return {
      ...{ method: operation.method, cookie, body: request.body },
      path: `${prefix}/${operation.path.replace(':sandbox', request.sandbox ?? 'check')}${queryOf(request)}`,
      headers: {
        'Accept-Encoding': 'identity',
        ...(request.range !== undefined && { Range: request.range }),
      },
      timeoutMs: request.timeoutMs ?? least + GRACE_MS,
    };
  };
  return {
    ...context,
    ...{ bot, conversation },
    call: (line, request) => client.call(callFor(line, request)),
    open: (line, request) => client.open(callFor(line, request)),
  };
}

function queryOf({ conversation, query }: OperationCall): string {
  const all = new URLSearchParams(conversation === undefined ? {} : { custom_channel_id: conversation });
  for (const [name, value] of Object.entries(query ?? {})) all.set(name, value);
  return all.size > 0 ? `?${all}` : '';
}

/** The row of the table. @throws Error if the table has no such row */
function operationAt(line: string): Operation {
  const found = OPERATIONS.find(({ method, path }) => `${method} ${path}` === line);
  if (!found) throw new Error(`the table of operations has no ${line}`);
  return found;
}
