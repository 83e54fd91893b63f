import type { OperationGroup } from '../../bots/bot.ts';
import { groupsOfBot } from '../groups-of-bot.ts';
import type { ThroughContext } from '../through-context.ts';
import type { ForeignQuestion } from './group-probe.ts';
import { GROUP_PROBES } from './group-probes.ts';
import { adviceOn, describe, isReached, verdictOn } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';
import { removeConversation } from './remove-conversation.ts';
import { checkUsersApart } from './users-apart.ts';

const CHECK = 'operations';

export interface ProvedSessions {
  /** Of the first user, with the conversation of the check. */
  readonly session: OperationSession;
  /** Of the second user, if there is one. */
  readonly other: OperationSession | undefined;
  /** What the second user has asked for already. */
  readonly questions: readonly ForeignQuestion[];
}

/**
 * Proves the groups of operations of one bot: which are on, that each that is on works, and that a second user does not
 * reach what the first one has. In the end it removes the conversation from the bot service.
 */
export async function checkOperations(
  context: ThroughContext,
  { session, other, questions }: ProvedSessions,
): Promise<void> {
  const foreign = [...questions];
  const on: OperationGroup[] = [];
  try {
    for (const group of Object.keys(GROUP_PROBES) as OperationGroup[]) {
      const state = await checkGroup(session, group);
      if (state === 'not reached') return;
      if (state === 'off') continue;
      on.push(group);
      foreign.push(...((await GROUP_PROBES[group].prove?.(session, other)) ?? []));
    }
    noteOtherBots(context, groupsOfBot(context.config, session.bot));
    await checkUsersApart(context, other, foreign);
  } finally {
    if (session.conversation.isBegun) await removeConversation(session, on.includes('chat'));
  }
}

/** Reports whether a group is on at the running relay, and whether this configuration says the same. */
async function checkGroup(
  session: OperationSession,
  group: OperationGroup,
): Promise<'on' | 'off' | 'not reached'> {
  const { config, bot, report, quote } = session;
  const answer = await GROUP_PROBES[group].ask(session);
  const found = { check: CHECK, about: group };
  if (!isReached(answer)) {
    const says = `not proved: answered with ${quote(describe(answer))}`;
    report({ ...found, state: 'problem', says, advice: adviceOn(answer) });
    return 'not reached';
  }
  const state = verdictOn(answer) === 'off' ? 'off' : 'on';
  const expected = groupsOfBot(config, bot).includes(group) ? 'on' : 'off';
  if (state === expected)
    report({ ...found, state: 'ok', says: state === 'on' ? 'on' : 'off: answered with 501' });
  else {
    const says = `${state} at the running relay, and ${expected} in this configuration`;
    const advice =
      'The running relay has other OPERATIONS, or another BOTS_FILE, than this configuration: restart it.';
    report({ ...found, state: 'problem', says, advice });
  }
  return state;
}

/** Notes the groups that only other bots have, since one bot is proved. */
function noteOtherBots(
  { config, otherBots, report }: ThroughContext,
  proved: readonly OperationGroup[],
): void {
  for (const group of Object.keys(GROUP_PROBES) as OperationGroup[]) {
    if (proved.includes(group)) continue;
    const bot = otherBots.find((one) => groupsOfBot(config, one).includes(group));
    if (bot === undefined) continue;
    const advice = `Prove it with --bot ${bot}.`;
    report({
      state: 'note',
      check: CHECK,
      about: group,
      says: `not proved: it is on for ${bot} only`,
      advice,
    });
  }
}
