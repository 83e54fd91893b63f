import type { BotEvent, Facts } from './bot-event.ts';
import { saidIn } from './known-events.ts';
import { RelayError } from './relay-error.ts';

const RUN_ERROR = 'asgard.run.error';

/** The text in an event: a piece to append (`add`), or the whole text so far (`text`). */
export type Text = (
  | { readonly add: string; readonly text?: undefined }
  | { readonly text: string; readonly add?: undefined }
) & {
  /** The id of the message that the text belongs to, if an answer consists of several messages. */
  readonly part?: string | undefined;
};

/**
 * Reads the events of the bot service; undefined for an event without text.
 * @throws RelayError if the event says that the bot's run has failed
 */
export function readFact(event: BotEvent): Text | undefined {
  if (event.eventType === RUN_ERROR) {
    const { message = 'The run of the bot failed.', code } = event.known ? event.fact.runError.error : {};
    throw new RelayError(message, { code: code ?? 'unexpected_response', status: 200 });
  }
  const { messageStart, messageDelta, messageComplete } = saidIn<TextFacts>(event);
  const { message } = messageDelta ?? messageComplete ?? messageStart ?? {};
  const part = message?.messageId ?? undefined;
  if (messageDelta) return { add: messageDelta.message.text, part };
  if (messageComplete) return { text: messageComplete.message.text, part };
  // A resumed stream repeats a message from its start.
  return part === undefined ? undefined : { text: '', part };
}

type TextFacts = Facts['asgard.message.start'] &
  Facts['asgard.message.delta'] &
  Facts['asgard.message.complete'];
