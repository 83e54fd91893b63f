import { newConversation } from '../conversation.ts';
import type { ThroughContext } from '../through-context.ts';
import { checkThroughMessage } from '../through-message.ts';
import { inOtherSession } from '../through-session.ts';
import { checkOperations } from './check-operations.ts';
import { foreignStop } from './foreign-stop.ts';
import { operationSession } from './operation-session.ts';

/**
 * Begins a conversation with a message, in the session of `cookie`, and proves with it what the other operations do.
 * Meanwhile a second visitor is signed in, if there is one, who must not reach the conversation.
 */
export async function checkConversation(context: ThroughContext, cookie: string): Promise<void> {
  const { bot, otherVisitor, config } = context;
  if (bot === undefined) return;
  const conversation = newConversation();
  const sessionOf = (own: string) => operationSession({ ...context, bot }, own, conversation);
  const prove = async (otherCookie: string | undefined) => {
    const other = otherCookie === undefined ? undefined : sessionOf(otherCookie);
    const stop = foreignStop(other);
    const isAnswered = await checkThroughMessage(context, { cookie, conversation, onRun: stop.onRun });
    const questions = await stop.ended();
    if (isAnswered) await checkOperations(context, { session: sessionOf(cookie), other, questions });
  };
  if (otherVisitor === undefined || config.channels.mode === 'shared') await prove(undefined);
  else await inOtherSession({ ...context, visitor: otherVisitor }, prove);
}
