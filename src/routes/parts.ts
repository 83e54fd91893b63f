import type { Request, Response } from 'express';
import type { IdentityProvider } from '../authenticate/oidc/identity-provider.ts';
import type { Users } from '../authenticate/password/users.ts';
import type { SessionStore } from '../authenticate/sessions/session-store.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import type { AttemptCounts } from '../pace/attempts.ts';
import type { EndpointBudgets } from '../pace/budgets.ts';
import type { Counts } from '../pace/request-limits.ts';
import type { StreamLeases } from '../pace/stream-leases.ts';
import type { OpenMessages } from '../relay/message/open-messages.ts';
import type { KeyRings } from '../relay/upstream/key-rings.ts';
import type { Metrics } from '../watch/metrics.ts';

/** What the way by which users sign in needs. */
export type SignIn =
  | { readonly mode: 'password'; readonly users: Users }
  | { readonly mode: 'oidc'; readonly provider: IdentityProvider }
  | { readonly mode: 'guest' };

/** What all instances know together. */
export interface Stores {
  readonly sessions: SessionStore;
  readonly budgets: EndpointBudgets;
  readonly streams: StreamLeases;
  /** Where requests are counted. */
  readonly counts: Counts;
  /** Where sign-ins with a password are counted. */
  readonly attempts: AttemptCounts;
}

/** What is known of the bots right now: it changes with the files that it comes from. */
export interface KnownBots {
  readonly keyRings: KeyRings;
  /** The rate limit of the bot `namespace/bot`, if it has one of its own. */
  limitOf(bot: string): number | undefined;
  /** Why the files could not be used when they were last read; `undefined` if they could. */
  lastFailure(): object | undefined;
}

/** What the application is built from; whoever builds them closes them. */
export interface Parts extends Stores {
  readonly config: Config;
  readonly logger: Logger;
  /** The bot service. */
  readonly upstreamUrl: Readonly<URL>;
  readonly signIn: SignIn;
  readonly bots: KnownBots;
  readonly open: OpenMessages;
  /** Whether Redis answers. Without it, everything is in the memory of this process. */
  readonly redis?: { answers(): Promise<boolean> } | undefined;
  /** What the process says of itself. */
  readonly lifecycle: { isReady(): boolean; isDraining(): boolean };
  /** Kept only if somebody can read them. */
  readonly metrics?: Metrics | undefined;
  /** Pages to serve besides, by their paths below the base path. */
  readonly pages?:
    | readonly { readonly path: string; readonly handler: (req: Request, res: Response) => void }[]
    | undefined;
}
