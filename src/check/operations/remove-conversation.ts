import { verdictOn } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';
import { reporterOf } from './report-operation.ts';

const CLEAR = 'POST channel/clear';
const DELETE = 'DELETE channel';
const METADATA = 'GET channel/metadata';

/** Clears and deletes the conversation of the check, so that it leaves nothing behind, and proves both. */
export async function removeConversation(session: OperationSession, isChatOn: boolean): Promise<void> {
  const { note } = reporterOf(session, DELETE);
  const { id } = session.conversation;
  if (!isChatOn) {
    const says = `not tried, since the group chat is off: the conversation ${id} stays at the bot service`;
    note(says);
    return;
  }
  await proveRemoval(session, CLEAR);
  if (!(await proveRemoval(session, DELETE))) return;
  const { ok, problem } = reporterOf(session, DELETE);
  const after = verdictOn(await session.call(METADATA, { conversation: id }));
  if (after === 'done') {
    const says = `the conversation ${id} is still there after the bot service said that it was deleted`;
    problem(says, 'Ask those who run the bot service; users believe that what they delete is gone.');
  } else ok('the conversation of this check is gone');
}

async function proveRemoval(session: OperationSession, line: typeof CLEAR | typeof DELETE): Promise<boolean> {
  const { ok, note, wrong } = reporterOf(session, line);
  const answer = await session.call(line, { conversation: session.conversation.id });
  const verdict = verdictOn(answer);
  if (verdict === 'unknown') note('404 of the bot service: it has no such conversation');
  else if (verdict !== 'done') wrong(answer);
  else if (line === CLEAR) ok(`answered with ${answer.status}`);
  return verdict === 'done';
}
