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

/** What an application reads in an event: its text, or an empty object if it has none. */
export type Said = Text | { readonly add?: undefined; readonly text?: undefined };

/**
 * Reads an event in the application's way; undefined has it read as usual. If it throws, the answer has failed with that
 * error. An `asgard.run.error` makes the answer fail, whatever it returns.
 */
export type Read = (event: BotEvent) => Said | undefined;

/** The text in an event; undefined if it has none. If it throws, the answer has failed with that error. */
export type TextOf = (event: BotEvent) => Text | undefined;

/** Makes the function that collects the text of one answer and returns the text so far. Each part is a paragraph. */
export function answerText(): (said: Text) => string {
  const parts = new Map<string | undefined, string>();
  return (said) => {
    const before = parts.get(said.part) ?? '';
    parts.set(said.part, said.add === undefined ? said.text : before + said.add);
    // A single part can have thousands of pieces, so its text is not copied for each.
    return parts.size === 1
      ? (parts.get(said.part) as string)
      : [...parts.values()].filter((text) => text !== '').join('\n\n');
  };
}

/** Reads events with `read`, and as usual what it does not read. @throws what `read` throws, or `readFact` */
export function reader(read: Read): TextOf {
  return (event) => {
    const said = read(event);
    if (!said || event.eventType === RUN_ERROR) return readFact(event);
    return said.add === undefined && said.text === undefined ? undefined : said;
  };
}

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
