import type { BotEvent } from './bot-event.ts';
import { readText } from './known-events.ts';

/** A text of an answer: what it is `now`, and what of it was `given` so far. */
interface TextGiven {
  now: string;
  given: string;
}

/**
 * The text in the events of an answer, in pieces to append. Several texts are paragraphs. A piece that was given stays:
 * of a text that the bot changes afterwards, nothing more is given.
 * @throws RelayError if the run has failed
 */
export async function* answerText(events: AsyncIterable<BotEvent>): AsyncGenerator<string, void> {
  const texts = new Map<string | undefined, TextGiven>();
  let separator = '';
  for await (const event of events) {
    const said = readText(event);
    if (!said) continue;
    const text = texts.get(said.part) ?? { now: '', given: '' };
    texts.set(said.part, text);
    const isNext = said.add !== undefined && text.now === text.given;
    text.now = said.text ?? text.now + said.add;
    // To compare all of a long text for each piece would take long.
    if (!isNext && !text.now.startsWith(text.given)) continue;
    const rest = isNext ? said.add : text.now.slice(text.given.length);
    if (rest === '') continue;
    yield (text.given === '' ? separator : '') + rest;
    text.given = text.now;
    separator = '\n\n';
  }
}
