import type { OperationGroup } from '../bots/bot.ts';
import { groupsOf } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';

/** The groups of operations that this configuration enables for `namespace/bot`. */
export function groupsOfBot({ upstream, operations }: Config, bot: string): readonly OperationGroup[] {
  return groupsOf(upstream, bot) ?? operations;
}
