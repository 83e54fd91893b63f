import { newConversation } from '../conversation.ts';
import { describeAnswer, problemOf } from '../judge-answer.ts';
import { messageBody } from '../send-message.ts';
import { type Answer, firstEventOf, headOf, type Opened, textOf } from '../through-client.ts';
import type { Apartness, ForeignQuestion } from './group-probe.ts';
import { verdictOn } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';

const MESSAGE = 'POST message/sse';
const TEXT = 'This is a test with a file that is not mine. Please answer with one word.';

/** A message of the second user with a file of the first one. The relay must refuse it; if it does not, it runs. */
export function nameForeignFile(
  { conversation, sendsForeignFile }: OperationSession,
  [blobId]: readonly string[],
): ForeignQuestion[] {
  if (!sendsForeignFile || blobId === undefined) return [];
  const ask = async (other: OperationSession): Promise<Apartness> => {
    const { id } = conversation;
    const message = JSON.parse(String(messageBody(TEXT, { ...newConversation(), id }))) as object;
    const bytes = Buffer.from(JSON.stringify({ ...message, blobIds: [blobId] }));
    let isRefused = false;
    try {
      const { response } = await other.open(MESSAGE, { body: { type: 'application/json', bytes } });
      const answer = await answerOf(response);
      if (answer.status === 200 && !problemOf(answer)) return { state: 'open', says: 'a stream' };
      isRefused = verdictOn(answer) === 'not_yours';
      return { state: isRefused ? 'apart' : 'unclear', says: describeAnswer(answer) };
    } finally {
      // Whatever else has happened, the message may have run.
      if (!isRefused) other.onSend();
    }
  };
  return [{ what: 'a message with its file', ask }];
}

/** The answer to a message; of a stream, its first event, which says whether the message has failed. */
async function answerOf(response: Opened['response']): Promise<Answer> {
  const head = headOf(response);
  return { ...head, text: await (head.status === 200 ? firstEventOf(response) : textOf(response)) };
}
