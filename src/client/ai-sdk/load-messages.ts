import { answerParts } from '../channel/answer-parts.ts';
import { botConversation } from '../channel/bot-conversation.ts';
import { metadataOf, newAnswer } from '../channel/channel-answer.ts';
import { pastQuestion } from '../channel/channel-past.ts';
import type { ChannelMessage } from '../channel/channel-types.ts';
import { type AnswerView, followHistory } from '../channel/follow-history.ts';
import type { BotClient } from '../session/bot-client.ts';
import { internalsOf } from '../session/client-internals.ts';
import { asRelayError, signedOut } from '../transport/relay-error.ts';

/** A message as it is so far. */
interface Loaded {
  now: ChannelMessage;
}

/**
 * What was said before in a conversation, for `new Chat({ messages })` or `chat.messages`. An answer that is under way is
 * there as far as it has come: `resume` puts the whole in its place. Empty without the group `chat`, and for a new chat.
 * @param client The client of the bot.
 * @param channelId The id of the chat.
 * @throws RelayError, also if nobody is signed in, or the user leaves meanwhile
 */
export async function loadMessages(client: BotClient, channelId: string): Promise<ChannelMessage[]> {
  const ended = internalsOf(client).tracker.ended();
  const all: Loaded[] = [];
  let failure: unknown;
  const talk = botConversation(client, channelId);
  const history = followHistory(talk, {
    onQuestion: (question) => void all.push({ now: pastQuestion(talk, question) }),
    onAnswer() {
      const answer: Loaded = { now: newAnswer('done') };
      all.push(answer);
      return collecting(answer);
    },
    onError(error, isWhole) {
      if (!isWhole) failure = error;
    },
  });
  await history.settled;
  history.leave();
  if (failure !== undefined) throw asRelayError(failure);
  // What is there now may be another user's.
  if (ended.aborted) throw signedOut();
  return all.map(({ now }) => now).filter(({ parts }) => parts.length > 0);
}

/** Collects the parts of an answer. It has the id of its run, by which `resume` finds it. */
function collecting(answer: Loaded): AnswerView {
  const { take } = answerParts();
  return {
    onEvent(event) {
      const { parts, messageId } = take(event);
      const { now } = answer;
      const metadata = { ...now.metadata, ...metadataOf(event, now, messageId) };
      answer.now = { ...now, id: event.runId ?? now.id, parts: parts ?? now.parts, metadata };
    },
    onVerdict(verdict) {
      answer.now = { ...answer.now, metadata: { ...answer.now.metadata, verdict } };
    },
    // What has come of an answer is shown, however it has ended.
    onState: () => {},
    onError: () => {},
  };
}
