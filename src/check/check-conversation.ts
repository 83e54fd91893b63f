import { OPERATION_GROUPS } from '../bots/bot.ts';
import { groupsOfBot, newConversation } from './conversation.ts';
import { type CheckedConversation, isReached, operationsOf, outcomeOf, wrong } from './operation-calls.ts';
import { metadataOf, OPERATION_PROOFS } from './operations.ts';
import type { ThroughContext } from './through-context.ts';
import { checkThroughMessage } from './through-message.ts';
import { inOtherSession } from './through-session.ts';
import { attemptStop, checkUsersApart, type ForeignQuestion } from './users-apart.ts';

const RESTART =
  'The running relay has other OPERATIONS, or another BOTS_FILE, than this configuration: restart it.';

/**
 * Begins a conversation with a message, in the session of `cookie`, proves with it what the groups of operations do, and
 * deletes it. Meanwhile a second visitor is signed in, if there is one, who must not reach what the first one has.
 */
export async function checkConversation(context: ThroughContext, cookie: string): Promise<void> {
  const { bot, otherVisitor, config } = context;
  if (bot === undefined) return;
  const conversation = newConversation();
  const prove = async (otherCookie: string | undefined) => {
    const call = operationsOf(context, bot, cookie);
    const other = otherCookie === undefined ? undefined : operationsOf(context, bot, otherCookie);
    const checked: CheckedConversation = { ...context, bot, conversation, call, other };
    const stop = attemptStop(checked);
    const isAnswered = await checkThroughMessage(context, { cookie, conversation, onRun: stop.onRun });
    const attempts = await stop.ended();
    if (!isAnswered) return;
    try {
      const questions = await checkGroups(checked);
      await checkUsersApart(checked, attempts, questions);
    } finally {
      if (conversation.isBegun) await removeConversation(checked);
    }
  };
  if (otherVisitor === undefined || config.channels.mode === 'shared') await prove(undefined);
  else await inOtherSession(context, otherVisitor, prove);
}

/**
 * Reports which groups are on, and that each that is on works. Returns what a second user must ask for in vain. If not
 * even the first group is reached, the others are not tried.
 */
async function checkGroups(checked: CheckedConversation): Promise<readonly ForeignQuestion[]> {
  const { config, report, bot, call, conversation } = checked;
  const questions: ForeignQuestion[] = [];
  for (const group of OPERATION_GROUPS) {
    const { own, judge, foreign } = OPERATION_PROOFS[group];
    const about = report.about('operations', group);
    const request = own(conversation);
    const answer = await call(request);
    if (group === 'message' && !isReached(answer)) {
      const { says, advice } = wrong(answer);
      about.problem(`not proved: ${report.quote(says)}`, advice);
      break;
    }
    const isOn = outcomeOf(answer) !== 'off';
    const shouldBeOn = groupsOfBot(config, bot).includes(group);
    if (isOn === shouldBeOn) about.ok(isOn ? 'on' : 'off: answered with 501');
    else if (isOn) about.problem('on at the running relay, and off in this configuration', RESTART);
    else about.problem('off at the running relay, and on in this configuration', RESTART);
    if (!isOn || !judge) continue;
    const verdict = await judge(answer, conversation, call);
    report.about('operation', request.line).add({ ...verdict, says: report.quote(verdict.says) });
    if (foreign && verdict.state === 'ok')
      questions.push({ what: foreign.what, call: foreign.call(conversation) });
  }
  return questions;
}

/** Deletes the conversation of the check, so that it leaves nothing behind, and proves that it is gone. */
async function removeConversation({ report, call, conversation }: CheckedConversation): Promise<void> {
  const line = 'DELETE channel';
  const { add, ok, note, problem } = report.about('operation', line);
  const { id } = conversation;
  const answer = await call({ line, conversation: id });
  const outcome = outcomeOf(answer);
  if (outcome === 'off')
    return note(`not tried, since the group chat is off: the conversation ${id} stays at the bot service`);
  if (outcome === 'unknown') return note('404 of the bot service: it has no such conversation');
  if (outcome !== 'done') return add(wrong(answer));
  if (outcomeOf(await call(metadataOf(conversation))) !== 'done')
    return ok('the conversation of this check is gone');
  const says = `the conversation ${id} is still there after the bot service said that it was deleted`;
  problem(says, 'Ask those who run the bot service; users believe that what they delete is gone.');
}
