import type { Config } from '../config/config.ts';
import type { CheckOptions } from './check-arguments.ts';
import { keysToTry } from './check-keys.ts';
import { groupsOfBot } from './groups-of-bot.ts';
import type { Visitors } from './visitors.ts';

/** How many messages a check sends at most. Each may be a paid run. */
export interface MessagePlan {
  /** Through the load balancer, as the first visitor. */
  readonly through: number;
  /** As the second visitor, with a file of the first one. It runs only if the relay does not refuse it. */
  readonly foreignFile: number;
  /** All, with those that go directly to the bot service. */
  readonly total: number;
}

interface Planned extends Pick<Visitors, 'visitor' | 'otherVisitor'> {
  readonly config: Config;
  readonly options: Pick<CheckOptions, 'messages' | 'through'>;
  /** The bots to ask, as `namespace/bot`. */
  readonly bots: readonly string[];
}

/** Plans the messages before the first one is sent: one with each key, and those of the other parts of the check. */
export function planMessages({ config, options, bots, visitor, otherVisitor }: Planned): MessagePlan {
  if (!options.messages) return { through: 0, foreignFile: 0, total: 0 };
  const keys = config.demo ? [] : keysToTry(config, bots).flatMap((one) => one.keys);
  const resumption = config.upstream.resume && keys.length > 0 ? 1 : 0;
  const has = (...groups: ('message' | 'files')[]) =>
    bots.some((bot) => groups.every((group) => groupsOfBot(config, bot).includes(group)));
  const through = options.through && visitor && has('message') ? 1 : 0;
  const isApart = config.channels.mode !== 'shared' && otherVisitor !== undefined;
  const foreignFile = through === 1 && isApart && has('message', 'files') ? 1 : 0;
  return { through, foreignFile, total: keys.length + resumption + through + foreignFile };
}
