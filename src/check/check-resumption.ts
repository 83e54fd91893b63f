import { createParser } from 'eventsource-parser';
import { RUN_BEGINS, type RunEvent, runEventOf } from '../relay/message/run-events.ts';
import { describeAnswer } from './answers.ts';
import type { BotAnswer, DirectMessages } from './check-keys.ts';
import { newMessage } from './conversation.ts';
import type { DirectMessage } from './direct-service.ts';
import { TIMED_OUT } from './http-client.ts';
import { note, ok, problem, type Verdict } from './report.ts';

const WITHOUT = 'A stream that breaks then ends with an error event, as with RESUME_UPSTREAM=off.';
const NO_ID = 'not tried: the answer carries no id, so its stream cannot be resumed';

/**
 * Proves that the bot service resumes a stream of this bot as the relay expects: sends a message, leaves after the first
 * id, and asks for the rest. If the earlier answer carried no id, no message is sent.
 */
export async function checkResumption(earlier: BotAnswer, messages: DirectMessages): Promise<void> {
  const about = messages.report.about('resumption', earlier.bot);
  try {
    about.add(await tryResumption(earlier, messages));
  } catch (error) {
    about.note(`the stream is not resumed: ${messages.report.quote((error as Error).message)}`, WITHOUT);
  }
}

async function tryResumption({ bot, key, seen }: BotAnswer, messages: DirectMessages): Promise<Verdict> {
  const noId = note(NO_ID, WITHOUT);
  if (seen.ids === 0) return noId;
  const message = { bot, key, message: newMessage(messages.text) };
  const begun = await headOf(message, 'lastEventId', messages);
  const { lastEventId } = begun;
  if (lastEventId === undefined) return noId;
  const { first } = await headOf({ ...message, lastEventId }, 'first', messages);
  if (first === undefined) {
    const says = 'the bot service ends the run with its connection: nothing came after the last id';
    return note(says, WITHOUT);
  }
  if (first.eventType === RUN_BEGINS && first.requestId !== begun.first?.requestId) {
    const says = 'the bot service runs the message again instead of resuming its stream';
    const advice = 'Set RESUME_UPSTREAM=off: each break would be a second paid run.';
    return problem(says, advice);
  }
  return ok('a stream goes on after its last id, and nothing runs again');
}

/** The beginning of a stream. */
interface StreamHead {
  lastEventId?: string;
  /** The first event. */
  first?: RunEvent;
}

/**
 * Sends a message, and reads its stream until the member that is wanted has come. A stream that breaks off has no more.
 * @throws Error that says why there is no stream
 */
async function headOf(
  message: DirectMessage,
  wanted: keyof StreamHead,
  { service, maxExecutionMs }: DirectMessages,
): Promise<StreamHead> {
  const sent = await service.send(message);
  if (sent === undefined) throw new Error('the bot takes no more messages right now');
  if ('status' in sent) throw new Error(`answered with ${describeAnswer(sent)}`);
  const head: StreamHead = {};
  const decoder = new TextDecoder();
  const parser = createParser({
    onEvent({ data }) {
      head.first ??= runEventOf(data);
    },
    onId(id) {
      if (id !== '') head.lastEventId ??= id;
    },
  });
  const timer = setTimeout(() => sent.response.destroy(TIMED_OUT), maxExecutionMs);
  try {
    for await (const chunk of sent.response as AsyncIterable<Buffer>) {
      parser.feed(decoder.decode(chunk, { stream: true }));
      if (head[wanted] !== undefined) break;
    }
  } catch {
    // What has come is returned.
  } finally {
    clearTimeout(timer);
  }
  return head;
}
