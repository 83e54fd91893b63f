import type { Readable } from 'node:stream';
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import { Problem } from '../errors.ts';
import { RUN_BEGINS, type RunEvent, runEventOf } from '../relay/message/run-events.ts';
import type { KeyAnswer, KeysOptions } from './check-keys.ts';
import type { Finding } from './findings.ts';
import { messageBody } from './send-message.ts';

const CHECK = 'resumption';

/**
 * Proves that the bot service resumes a stream of this bot as the relay expects: sends a message, leaves after the first
 * id, and asks for the rest. `seen` is an earlier answer of the bot, to a message with `key`: if it carried no id, no
 * message is sent.
 */
export async function checkResumption(earlier: AnsweredBot, options: KeysOptions): Promise<void> {
  const finding = await tryResumption(earlier, options);
  options.report({ ...finding, check: CHECK, about: earlier.bot });
}

type AnsweredBot = KeyAnswer & { readonly bot: string };

type ResumptionVerdict = Pick<Finding, 'state' | 'says' | 'advice'>;

async function tryResumption(
  { bot, key, seen }: AnsweredBot,
  { text, send, quote }: KeysOptions,
): Promise<ResumptionVerdict> {
  if (seen.ids === 0) return NO_ID;
  const body = messageBody(text);
  const ask = async (lastEventId: string | undefined, isEnough: (head: StreamHead) => boolean) => {
    const head: StreamHead = {};
    const resumed = lastEventId === undefined ? {} : { lastEventId };
    const message = { bot, text, key, body, readToEnd: false, ...resumed };
    await send({ ...message, read: (answer) => readHead(answer, head, isEnough) });
    return head;
  };
  try {
    const begun = await ask(undefined, ({ lastEventId }) => lastEventId !== undefined);
    if (begun.lastEventId === undefined) return NO_ID;
    const rest = await ask(begun.lastEventId, ({ first }) => first !== undefined);
    return verdictOn(begun, rest);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const says = `the stream is not resumed: ${quote(error.message)}`;
    return { state: 'note', says, advice: WITHOUT };
  }
}

/** The beginning of a stream. */
interface StreamHead {
  lastEventId?: string;
  /** The first event. */
  first?: RunEvent;
}

/** Reads a stream until `head` has enough of it. A stream that breaks off has no more. */
async function readHead(
  body: Readable,
  head: StreamHead,
  isEnough: (head: StreamHead) => boolean,
): Promise<void> {
  const decoder = new TextDecoder();
  const parser = createParser({
    onEvent({ data }: EventSourceMessage) {
      head.first ??= runEventOf(data);
    },
    onId(id) {
      if (id !== '') head.lastEventId ??= id;
    },
  });
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      parser.feed(decoder.decode(chunk, { stream: true }));
      if (isEnough(head)) break;
    }
  } catch (error) {
    if (error instanceof Problem) throw error;
  }
}

const WITHOUT = 'A stream that breaks then ends with an error event, as with RESUME_UPSTREAM=off.';
const NO_ID: ResumptionVerdict = {
  state: 'note',
  says: 'not tried: the answer carries no id, so its stream cannot be resumed',
  advice: WITHOUT,
};

function verdictOn(begun: StreamHead, rest: StreamHead): ResumptionVerdict {
  if (rest.first === undefined) {
    const says = 'the bot service ends the run with its connection: nothing came after the last id';
    return { state: 'note', says, advice: WITHOUT };
  }
  const { eventType, requestId } = rest.first;
  if (eventType === RUN_BEGINS && requestId !== begun.first?.requestId) {
    const says = 'the bot service runs the message again instead of resuming its stream';
    return {
      state: 'problem',
      says,
      advice: 'Set RESUME_UPSTREAM=off: each break would be a second paid run.',
    };
  }
  return { state: 'ok', says: 'a stream goes on after its last id, and nothing runs again' };
}
