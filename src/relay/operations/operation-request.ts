import type { IncomingHttpHeaders } from 'node:http';
import type { Bot } from '../../bots/bot.ts';
import type { Operation } from './suspend.ts';

/** Where the paths of bots begin: in the newest clients, and in the service's specification. */
export const PATH_SHAPES = ['/ns', '/generic/ns'] as const;
export type PathShape = (typeof PATH_SHAPES)[number];

/** What of a client's request goes upstream, as the checks before have found it. */
export interface AcceptedOperation {
  readonly operation: Operation;
  readonly shape: PathShape;
  readonly bot: Bot;
  readonly query: URLSearchParams;
  /** As the client sent them. */
  readonly headers: IncomingHttpHeaders;
  readonly requestId: string;
  readonly userId: string;
}

/** A request to the bot service without a body, still without its key. */
export interface OperationRequest {
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface OperationRequestOptions {
  readonly baseUrl: Readonly<URL>;
  /** The header that carries the session's user id, if any. */
  readonly userHeader: string | undefined;
}

/**
 * Makes the function that builds the upstream request of an operation. Path and headers are built from what was
 * accepted, not copied from what came: nothing else can leave (RFC 9110 §7.6.1 names the hop-by-hop fields).
 */
export function operationRequests({ baseUrl, userHeader }: OperationRequestOptions) {
  const prefix = baseUrl.pathname.replace(/\/+$/, '');
  return function operationRequest(accepted: AcceptedOperation): OperationRequest {
    const { operation, shape, bot, query, headers, requestId, userId } = accepted;
    const [ns, name] = [encodeURIComponent(bot.namespace), encodeURIComponent(bot.botProviderName)];
    const { traceparent } = headers;
    return {
      path: `${prefix}${shape}/${ns}/bot-provider/${name}/${operation.path}?${query}`,
      headers: {
        accept: 'application/json',
        'accept-encoding': 'identity',
        'x-request-id': requestId,
        ...(typeof traceparent === 'string' && { traceparent }),
        ...(userHeader !== undefined && { [userHeader.toLowerCase()]: userId }),
      },
    };
  };
}
