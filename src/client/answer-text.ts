import type { BotEvent } from './read-events.ts';
import { RelayError } from './relay-error.ts';

/** The text in an event: a piece to append (`add`), or the whole text so far (`text`). */
export type Said = ({ readonly add: string } | { readonly text: string }) & {
  /** The id of the message that the text belongs to, if an answer consists of several messages. */
  readonly part?: string | undefined;
};

/** Returns the text in an event; undefined if it has none. If it throws, the answer has failed with that error. */
export type Read = (event: BotEvent) => Said | undefined;

/** Makes the function that collects the text of one answer and returns the text so far. Each part is a paragraph. */
export function answerText(): (said: Said) => string {
  const parts = new Map<string | undefined, string>();
  return (said) => {
    const before = parts.get(said.part) ?? '';
    parts.set(said.part, 'add' in said ? before + said.add : said.text);
    // A single part can have thousands of pieces, so its text is not copied for each.
    return parts.size === 1
      ? (parts.get(said.part) as string)
      : [...parts.values()].filter((text) => text !== '').join('\n\n');
  };
}

interface Piece {
  readonly message?: { readonly messageId?: unknown; readonly text?: unknown } | null;
}

interface Fact {
  readonly messageStart?: Piece | null;
  readonly messageDelta?: Piece | null;
  readonly messageComplete?: Piece | null;
  readonly runError?: {
    readonly error?: { readonly message?: unknown; readonly code?: unknown } | null;
  } | null;
}

/**
 * Reads the events of the bot service; undefined for an event without text.
 * @throws RelayError if the event says that the bot's run has failed
 */
export function readFact({ data }: BotEvent): Said | undefined {
  const fact = (data as { readonly fact?: Fact | null } | null | undefined)?.fact ?? {};
  if (fact.runError) {
    const { message, code } = fact.runError.error ?? {};
    throw new RelayError(typeof message === 'string' ? message : 'The run of the bot failed.', {
      code: typeof code === 'string' ? code : 'unexpected_response',
      status: 200,
    });
  }
  const said = (fact.messageDelta ?? fact.messageComplete ?? fact.messageStart)?.message;
  const part = typeof said?.messageId === 'string' ? said.messageId : undefined;
  // A resumed stream repeats a message from its start.
  if (fact.messageStart && part !== undefined) return { text: '', part };
  if (typeof said?.text !== 'string') return undefined;
  return fact.messageDelta ? { add: said.text, part } : { text: said.text, part };
}
