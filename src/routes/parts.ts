import type { Request, Response } from 'express';
import type { IdentityProvider } from '../authenticate/oidc/identity-provider.ts';
import type { Users } from '../authenticate/password/users.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import type { LiveBots } from '../process/live-bots.ts';
import type { Stores } from '../process/stores.ts';
import type { OpenMessages } from '../relay/message/open-messages.ts';
import type { Redis } from '../storage/redis.ts';
import type { Metrics } from '../watch/metrics.ts';

/** What the way by which users sign in needs. */
export type SignIn =
  | { readonly mode: 'password'; readonly users: Users }
  | { readonly mode: 'oidc'; readonly provider: IdentityProvider }
  | { readonly mode: 'guest' };

/** What the application is built from; whoever builds them closes them. */
export interface Parts extends Stores {
  readonly config: Config;
  readonly logger: Logger;
  /** The bot service. */
  readonly upstreamUrl: Readonly<URL>;
  readonly signIn: SignIn;
  readonly bots: LiveBots;
  readonly open: OpenMessages;
  /** Without it, everything is in the memory of this process. */
  readonly redis?: Pick<Redis, 'answers'> | undefined;
  /** What the process says of itself; see `server.ts`. */
  readonly lifecycle: { isReady(): boolean; isDraining(): boolean };
  /** Kept only if somebody can read them. */
  readonly metrics?: Metrics | undefined;
  /** Pages to serve besides, by their paths below the base path. */
  readonly pages?:
    | readonly { readonly path: string; readonly handler: (req: Request, res: Response) => void }[]
    | undefined;
}
