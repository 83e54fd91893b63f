import type { Request, Response } from 'express';
import type { ConnectionBounds } from '../arrive/connection-bounds.ts';
import type { IdentityProvider } from '../authenticate/oidc/identity-provider.ts';
import type { signInFlows } from '../authenticate/oidc/sign-in-flows.ts';
import type { Users } from '../authenticate/password/users.ts';
import type { SessionStore } from '../authenticate/sessions/session-store.ts';
import type { OperationGroup } from '../bots/bot.ts';
import type { Config } from '../config/config.ts';
import type { GivenBlobs } from '../guard/conversation-blobs.ts';
import type { Logger } from '../logger.ts';
import type { AttemptCounts } from '../pace/attempts.ts';
import type { EndpointBudgets } from '../pace/budgets.ts';
import type { StreamLeases } from '../pace/places.ts';
import type { Counts } from '../pace/request-limits.ts';
import type { KeyRings } from '../relay/upstream/key-rings.ts';
import type { RunStore } from '../runs/run-store.ts';
import type { Check, Metrics } from '../watch/metrics.ts';

/** The way in which users sign in, and what it needs. */
export type SignIn =
  | { readonly mode: 'password'; readonly users: Users }
  | {
      readonly mode: 'oidc';
      readonly provider: IdentityProvider;
      /** A value of the caller's, so that other ways to sign in do not load its libraries. */
      readonly signInFlows: typeof signInFlows;
    }
  | { readonly mode: 'guest' };

/** The state that all instances share. */
export interface Stores {
  readonly sessions: SessionStore;
  readonly budgets: EndpointBudgets;
  readonly streams: StreamLeases;
  /** Counts requests. */
  readonly counts: Counts;
  /** The files that users were given in their conversations. */
  readonly blobs: GivenBlobs;
  /** Counts sign-ins with a password. */
  readonly attempts: AttemptCounts;
  /** Keeps the names of runs, and what others can read of them. */
  readonly runStore: RunStore;
}

/** The current settings of the bots. They change when their files change. */
export interface KnownBots {
  readonly keyRings: KeyRings;
  /** The rate limit of the bot `namespace/bot`, if it has one of its own. */
  limitOf(bot: string): number | undefined;
  /** The groups of operations that are enabled for the bot `namespace/bot`. */
  groupsOf(bot: string): readonly OperationGroup[];
  /** Whether the files could be used when they were last read. */
  canUseFiles(): boolean;
}

/**
 * What the stages before the routes, and the routes other than those of bots, are built from. Its caller closes what it
 * has opened.
 */
export interface Dependencies extends Pick<Stores, 'sessions' | 'counts' | 'attempts'> {
  readonly config: Config;
  readonly logger: Logger;
  /** Undefined if metrics are not served. */
  readonly metrics: Metrics | undefined;
  readonly bots: Pick<KnownBots, 'canUseFiles'>;
  readonly signIn: SignIn;
  /** Undefined if all state is in the memory of this process. */
  readonly redis: object | undefined;
  /** The bounds of the connections of clients. */
  readonly bounds: ConnectionBounds;
  /** The state of the process. */
  readonly lifecycle: { isDraining(): boolean };
  /** The checks of `/readyz`. */
  readonly checks: Readonly<Record<string, Check>>;
  /** Additional pages, by their paths below the base path. */
  readonly pages: readonly {
    readonly path: string;
    readonly handler: (req: Request, res: Response) => void;
  }[];
}
