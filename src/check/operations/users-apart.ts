import type { ThroughContext } from '../through-context.ts';
import { unanswered } from './apartness.ts';
import type { ForeignQuestion } from './group-probe.ts';
import type { OperationSession } from './operation-session.ts';

const CHECK = 'users apart';
const DELETE = 'DELETE channel';

const ADVICE =
  'Stop using this deployment for real conversations, and look at CHANNELS of the running relay; if it is that of this configuration, ask those who run the bot service whether it keeps conversations apart by customChannelId.';

/**
 * Proves that a second user who knows the id of the first one's conversation does not reach it: asks each of
 * `questions` as the second user, in the session `other`.
 */
export async function checkUsersApart(
  context: ThroughContext,
  other: OperationSession | undefined,
  questions: readonly ForeignQuestion[],
): Promise<void> {
  const { report } = context;
  const unproved = whyUnproved(context, questions);
  if (unproved) report({ state: 'note', check: CHECK, ...unproved });
  // A second user who could not sign in has been reported.
  if (unproved || !other) return;
  const apart: string[] = [];
  for (const { what, ask } of questions) {
    const { state, says } = await ask(other).catch(unanswered);
    const answer = context.quote(says);
    if (state === 'apart') apart.push(what);
    else if (state === 'open') {
      const found = `a second user who knows the id of a conversation gets ${what}: ${answer}`;
      report({ state: 'problem', check: CHECK, says: found, advice: ADVICE });
    } else report({ state: 'note', check: CHECK, says: `${what} not proved: answered with ${answer}` });
  }
  // This is a conversation of the second user, which a question may have begun.
  await other.call(DELETE, { conversation: other.conversation.id });
  if (apart.length === 0) return;
  const says = `a second user who knows the id of a conversation does not get ${apart.join(', ')}`;
  report({ state: 'ok', check: CHECK, says });
}

/** Why it is not proved that users are apart; `undefined` if it can be. */
function whyUnproved(
  { config, otherVisitor }: ThroughContext,
  questions: readonly ForeignQuestion[],
): { readonly says: string; readonly advice: string } | undefined {
  if (config.channels.mode === 'shared') {
    return {
      says: 'with CHANNELS=shared nobody owns a conversation: every user who knows its id can read and write it',
      advice: 'Set CHANNELS=scoped, unless that is what you want.',
    };
  }
  if (otherVisitor === undefined) {
    return {
      says: 'not proved that a user does not see the conversations of another: there is no second user',
      advice: 'Give --other-user NAME.',
    };
  }
  if (questions.length > 0) return undefined;
  return {
    says: 'not proved that a user does not see the conversations of another: no conversation was begun whose operations work',
    advice: 'Check without --no-messages, with the group chat or files on.',
  };
}
