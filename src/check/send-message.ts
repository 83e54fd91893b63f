import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { Config } from '../config/config.ts';
import { Problem } from '../errors.ts';
import type { EndpointSlot, SlotWaits } from '../pace/slot-waits.ts';
import { judgeResponse } from '../relay/message/judge-response.ts';
import { bodyOf, type UpstreamAnswer } from '../relay/upstream/answer-arrival.ts';
import { createUpstream, type Upstream } from '../relay/upstream/send.ts';
import { messagePath, withKey } from '../relay/upstream/upstream-request.ts';
import type { Secret } from '../secret.ts';
import { newConversation } from './conversation.ts';
import { type Observation, observeStream } from './observe-stream.ts';

/** A message to a bot, with one key. */
export interface TestMessage {
  /** `namespace/bot`. */
  readonly bot: string;
  readonly key: Secret;
  readonly text: string;
  /** Whether its answer is read to its end. If not, it is aborted as soon as the service has accepted the key. */
  readonly readToEnd: boolean;
  /** Reads the answer instead. It is aborted when this is done. */
  readonly read?: (body: Readable) => Promise<void>;
  /** Instead of a body for a new conversation. */
  readonly body?: Buffer;
  /** Asks for the rest of the stream after this id. */
  readonly lastEventId?: string;
}

export interface TestMessageOptions {
  readonly config: Config;
  readonly slots: SlotWaits;
  readonly mask: (text: string) => string;
  /** Called for every message that is sent, once. */
  readonly onSend: () => void;
}

/** What the service did with a message; and how its answer arrived, if it was read. */
export type Outcome =
  | { readonly outcome: 'key_rejected' | 'key_accepted' }
  | { readonly outcome: 'answered'; readonly seen: Observation };

/**
 * Makes the function that sends a message directly to the bot service, as the relay does, when it has a slot. If the
 * service asks to wait, the message waits and is sent once more.
 * @throws Problem of the upstream kinds, or `rate_limited` if no slot comes in time
 */
export function testMessages(options: TestMessageOptions): (message: TestMessage) => Promise<Outcome> {
  const { config, slots, onSend } = options;
  const { send } = createUpstream(config.upstream.baseUrl as Readonly<URL>);
  const sendNow = (message: TestMessage) => sendOnce(message, options, send);
  return async function sendTestMessage(message) {
    const neverAborted = new AbortController().signal;
    const { slot } = await slots.take({ endpoint: message.bot, holders: ['check'] }, neverAborted);
    if (!slot) throw NO_SLOT;
    // A resumption is no run. A message that the service asks to send later has not run: it counts once.
    if (message.lastEventId === undefined) onSend();
    try {
      return await sendNow(message);
    } catch (error) {
      if (!(await maySendAgain(error, slot, slots))) throw error;
      return await sendNow(message);
    }
  };
}

/** Sends a message that has its slot, and reads its answer if `readToEnd` is set. */
async function sendOnce(
  message: TestMessage,
  { config, mask }: TestMessageOptions,
  send: Upstream['send'],
): Promise<Outcome> {
  const { responseTimeoutMs, maxExecutionMs } = config.upstream;
  const stop = new AbortController();
  const stopAfter = (ms: number, problem: Problem) => setTimeout(() => stop.abort(problem), ms);
  const answerTimeout = stopAfter(responseTimeoutMs, NO_ANSWER);
  const deadline = stopAfter(maxExecutionMs, TOO_LONG);
  let response: UpstreamAnswer | undefined;
  let body: Readable | undefined;
  const close = () => (body ? body.destroy(stop.signal.reason) : response?.close());
  stop.signal.addEventListener('abort', close);
  try {
    const sentAt = performance.now();
    const pacing = { onDelayed: async () => {}, onSent: () => {} };
    const request = withKey(requestFor(message, config), message.key);
    response = await send(request, { signal: stop.signal, ...pacing });
    const judged = await judgeResponse(response, mask);
    clearTimeout(answerTimeout);
    if (judged.kind === 'key_refused') return { outcome: 'key_rejected' };
    if (judged.kind === 'asked_to_wait') throw judged.problem;
    if (message.readToEnd || message.read) body = bodyOf(response);
    if (body && message.read) await message.read(body);
    if (!body || message.read) return { outcome: 'key_accepted' };
    return { outcome: 'answered', seen: await observeStream(body, sentAt) };
  } finally {
    clearTimeout(answerTimeout);
    clearTimeout(deadline);
    stop.signal.removeEventListener('abort', close);
    response?.close();
  }
}

const NO_ANSWER = new Problem('upstream_timeout', 'The bot service did not begin to answer in time.');
const TOO_LONG = new Problem('deadline_exceeded', 'The answer took longer than MAX_EXECUTION_MS.');
const NO_SLOT = new Problem('rate_limited', 'The bot had no slot free for the check.');

async function maySendAgain(error: unknown, slot: EndpointSlot, slots: SlotWaits): Promise<boolean> {
  if (!(error instanceof Problem) || error.code !== 'upstream_rate_limited') return false;
  const askedMs = (error.options.retryAfter ?? 1) * 1000;
  return (await slots.takeAfterRefusal(slot, askedMs, new AbortController().signal)) === 0;
}

/** A body as clients in the field send it, for a new conversation if none is given. */
export function messageBody(text: string, { id, messageId } = newConversation()): Buffer {
  return Buffer.from(
    JSON.stringify({ customChannelId: id, customMessageId: messageId, text, action: 'NONE' }),
  );
}

/** The path of a message to the bot `namespace/bot`; it begins with `prefix`. */
export function pathFor(prefix: string, bot: string): string {
  const [namespace = '', botProviderName = ''] = bot.split('/');
  return messagePath(prefix, { namespace, botProviderName }, '/generic/ns');
}

function requestFor({ bot, text, body = messageBody(text), lastEventId }: TestMessage, { upstream }: Config) {
  return {
    path: pathFor((upstream.baseUrl as Readonly<URL>).pathname.replace(/\/+$/, ''), bot),
    headers: {
      'content-type': 'application/json',
      'content-length': String(body.length),
      accept: 'text/event-stream',
      'accept-encoding': 'identity',
      'x-request-id': randomUUID(),
      ...(lastEventId !== undefined && { 'last-event-id': Buffer.from(lastEventId).toString('latin1') }),
      ...(upstream.userHeader && { [upstream.userHeader]: 'bot-relay-check' }),
    },
    body,
  };
}
