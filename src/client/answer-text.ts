import type { BotEvent } from './read-events.ts';
import { RelayError } from './relay-error.ts';

/** What an event says: a piece that follows what was said before, or all of it once more. */
export type Said = ({ readonly add: string } | { readonly text: string }) & {
  /** Which of the messages that an answer may consist of, if it has several. */
  readonly part?: string | undefined;
};

/** Reads what an event says; undefined if nothing. If it throws, the answer has failed with that. */
export type Read = (event: BotEvent) => Said | undefined;

/** Gathers the text of one answer; its parts are paragraphs. What comes out is the text so far. */
export function answerText(): (said: Said) => string {
  const parts = new Map<string | undefined, string>();
  return (said) => {
    const before = parts.get(said.part) ?? '';
    parts.set(said.part, 'add' in said ? before + said.add : said.text);
    // One part is not copied: it grows by thousands of pieces.
    return parts.size === 1 ? (parts.get(said.part) as string) : [...parts.values()].join('\n\n');
  };
}

interface Piece {
  readonly message?: { readonly messageId?: unknown; readonly text?: unknown } | null;
}

interface Fact {
  readonly messageDelta?: Piece | null;
  readonly messageComplete?: Piece | null;
  readonly runError?: {
    readonly error?: { readonly message?: unknown; readonly code?: unknown } | null;
  } | null;
}

/**
 * Reads the kinds of events that bots write; others say nothing.
 * @throws RelayError the error with which a bot's run ended
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
  const said = (fact.messageDelta ?? fact.messageComplete)?.message;
  if (typeof said?.text !== 'string') return undefined;
  const part = typeof said.messageId === 'string' ? said.messageId : undefined;
  return fact.messageDelta ? { add: said.text, part } : { text: said.text, part };
}
