import type { BotEvent, Facts } from './bot-event.ts';
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
  if (!event.known) return undefined;
  switch (event.eventType) {
    case 'asgard.message.start': {
      // A resumed stream repeats a message from its start.
      const part = partOf(event.fact.messageStart);
      return part === undefined ? undefined : { text: '', part };
    }
    case 'asgard.message.delta': {
      const { messageDelta } = event.fact;
      return { add: messageDelta.message.text, part: partOf(messageDelta) };
    }
    case 'asgard.message.complete': {
      const { messageComplete } = event.fact;
      return { text: messageComplete.message.text, part: partOf(messageComplete) };
    }
    default:
      return undefined;
  }
}

function partOf({ message }: Facts['asgard.message.start']['messageStart']): string | undefined {
  return message.messageId ?? undefined;
}
