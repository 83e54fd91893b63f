/** Who a session belongs to. */
export interface User {
  readonly id: string;
  readonly name: string;
}

/** A bot of the allow-list, by its decoded path parameters. */
export interface Bot {
  readonly namespace: string;
  readonly botProviderName: string;
}

/** A live session, as the stages behind `require-session` see it. */
export interface LiveSession {
  /** The session's key: names it and opens nothing (`authenticate/session-key.ts`). The cookie's id stays in its stage. */
  readonly id: string;
  readonly user: User;
}

/** Whom a message counts for where places are few: names without white space that show nobody's id or address. */
export interface Holders {
  /** The user, whatever the session. */
  readonly user: string;
  /** Only of guests, who can be as many users as they like: all that come from one address. */
  readonly address?: string;
}

/** A slot of an endpoint's budget that a message has. */
export interface EndpointSlot {
  readonly endpoint: string;
  readonly ticket: string;
  /** When the budget was asked whether the message may start, by `performance.now()` in ms. */
  startedAt: number;
  /** How long the message may still wait for a slot, in ms. */
  waitLeftMs: number;
  /** Whether the message is the one that shows whether the service takes messages again. */
  onTrial: boolean;
}

/** What the stages tell each other about one request: the shape of `res.locals`. */
export interface RequestLocals {
  /** Set by `arrive/request-id`. */
  requestId: string;
  /** The route's path pattern, for the log; never the path that came. Set by the route. */
  route?: string;
  /** True for a request that only asks how the relay is. Set by the route. */
  isProbe?: boolean;
  /** How the request ended: a problem's code, `client_closed`, `client_stalled` or `not_ready`; unset means that it went well. */
  outcome?: string;
  /** Why the bot service could not answer, as an error code of the system or the HTTP parser; for the log. */
  cause?: string;
  /** How the log tells of the request, where its outcome does not say. */
  level?: 'warn';
  /** Who was refused, where there is no session; for the log. */
  userId?: string;
  /** When the first byte of the bot service's stream went down, by `performance.now()` in ms. */
  firstByteAt?: number;
  /** The HTTP status of the bot service, if it answered. */
  upstreamStatus?: number | undefined;
  /** Bytes of the answer's body that were handed to the socket. */
  bytes?: number;
  /** Set by `authenticate/require-session`. */
  session?: LiveSession;
  /** The local path where a sign-in at the identity provider leads back to. Set by `authenticate/oidc-routes`. */
  returnTo?: string;
  /** How many sessions the identity provider has ended, and what it named them by. Set by `authenticate/oidc-routes`. */
  sessionsEnded?: { readonly by: 'sid' | 'sub'; readonly count: number };
  /** Ends the message. Set by `relay/open-messages`. */
  stop?: AbortController;
  /** Whom the message counts for. Set by `guard/holders`. */
  holders?: Holders;
  /** Set by `guard/allowed-bot`. */
  bot?: Bot;
  /** The message's place in its endpoint's budget. Set by `guard/endpoint-budget`. */
  slot?: EndpointSlot;
  /** How long the message waited for its slot, in ms. Set by `guard/endpoint-budget`. */
  slotWaitMs?: number;
  /** The body's bytes as they came, known to be JSON, until they are sent. Set by `guard/json-body`. */
  body?: Buffer;
}

declare global {
  namespace Express {
    interface Locals extends RequestLocals {}
  }
}
