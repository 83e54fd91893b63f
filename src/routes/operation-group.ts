import { type Bot, botName, type OperationGroup } from '../bots/bot.ts';
import { Problem } from '../errors.ts';

/** Refuses an operation whose group is not enabled for the bot. @throws Problem `operation_not_enabled` */
export type RequireGroup = (group: OperationGroup, bot: Bot) => void;

/** Makes the step that requires a group; `groupsOf` returns those that are enabled for `namespace/bot`. */
export function requireGroup(groupsOf: (bot: string) => readonly OperationGroup[]): RequireGroup {
  return function requireGroup(group, bot) {
    if (!groupsOf(botName(bot)).includes(group)) throw notEnabled();
  };
}

/** Clients of the bot service read 404 as a fact about the conversation, so it is never the answer here. */
function notEnabled(): Problem {
  return new Problem('operation_not_enabled', 'This operation is not enabled for this bot.');
}
