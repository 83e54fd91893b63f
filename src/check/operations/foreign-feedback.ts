import { apartness } from './apartness.ts';
import type { ForeignQuestion } from './group-probe.ts';
import { jsonOf, stringsNamed } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';

/**
 * A feedback of the second user on a message of the first one. The relay does not know whose a message is: the bot
 * service must see that it belongs to the conversation. `events` is the data of a live stream, one event for each.
 */
export function foreignFeedback(
  { conversation }: OperationSession,
  events: readonly string[],
): ForeignQuestion[] {
  const messageId = events.flatMap((data) => stringsNamed(jsonOf({ text: data }), 'messageId')).at(-1);
  if (messageId === undefined) return [];
  const feedback = { customChannelId: conversation.id, messageId, verdict: 'GOOD', comment: '' };
  const body = { type: 'application/json', bytes: Buffer.from(JSON.stringify(feedback)) };
  const ask: ForeignQuestion['ask'] = async (other) =>
    apartness(await other.call('POST message/feedback', { body }));
  return [{ what: 'a feedback on its message', ask }];
}
