import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { Config } from '../config/config.ts';
import { Problem } from '../errors.ts';
import type { EndpointSlot, SlotWaits } from '../pace/slot-waits.ts';
import { judgeResponse } from '../relay/message/judge-response.ts';
import type { UpstreamAnswer } from '../relay/upstream/answer-arrival.ts';
import { bodyOf } from '../relay/upstream/answer-body.ts';
import { createUpstream, type Upstream } from '../relay/upstream/send.ts';
import { messagePath, withKey } from '../relay/upstream/upstream-request.ts';
import type { Secret } from '../secret.ts';
import { type Observation, observeStream } from './observe-stream.ts';

/** A message to a bot, with one key. */
export interface TestMessage {
  /** `namespace/bot`. */
  readonly bot: string;
  readonly key: Secret;
  readonly text: string;
  /** Whether its answer is read to its end; otherwise it is left as soon as the service has taken the key. */
  readonly whole: boolean;
}

export interface TestMessageOptions {
  readonly config: Config;
  readonly slots: SlotWaits;
  readonly mask: (text: string) => string;
  /** Told of every message that leaves. */
  readonly onSend: () => void;
}

/** How the service met a message: how its answer arrived, where that was read. */
export type Met =
  | { readonly outcome: 'key_rejected' | 'taken' }
  | { readonly outcome: 'answered'; readonly seen: Observation };

/**
 * Makes the function that sends a message straight to the bot service, as the relay does, when its slot has come.
 * Where the service asks to wait, the message waits and goes once more.
 * @throws Problem of the upstream kinds, or `rate_limited` if no slot comes in time
 */
export function testMessages(options: TestMessageOptions): (message: TestMessage) => Promise<Met> {
  const { config, slots } = options;
  const { send } = createUpstream(config.upstream.baseUrl as Readonly<URL>);
  const attempt = (message: TestMessage) => sendOnce(message, options, send);
  return async function sendTestMessage(message) {
    const never = new AbortController().signal;
    const { slot } = await slots.take({ endpoint: message.bot, holders: ['check'] }, never);
    if (!slot) throw NO_SLOT;
    let met: Met | undefined;
    try {
      met = await attempt(message);
    } catch (error) {
      if (!(await mayGoAgain(error, slot, slots))) throw error;
      met = await attempt(message);
    } finally {
      slots.judged(slot, met !== undefined && met.outcome !== 'key_rejected');
    }
    return met;
  };
}

/** Sends a message whose slot has come, and reads of its answer what is wanted. */
async function sendOnce(
  message: TestMessage,
  { config, mask, onSend }: TestMessageOptions,
  send: Upstream['send'],
): Promise<Met> {
  const { responseTimeoutMs, maxExecutionMs } = config.upstream;
  const stop = new AbortController();
  const stopAfter = (ms: number, problem: Problem) => setTimeout(() => stop.abort(problem), ms);
  const patience = stopAfter(responseTimeoutMs, NO_ANSWER);
  const deadline = stopAfter(maxExecutionMs, TOO_LONG);
  let response: UpstreamAnswer | undefined;
  let body: Readable | undefined;
  const close = () => (body ? body.destroy(stop.signal.reason) : response?.close());
  stop.signal.addEventListener('abort', close);
  try {
    onSend();
    const sentAt = performance.now();
    const pacing = { mayLeave: async () => {}, onSent: () => {} };
    const request = withKey(requestFor(message, config), message.key);
    response = await send(request, { signal: stop.signal, ...pacing });
    const judged = await judgeResponse(response, mask);
    clearTimeout(patience);
    if (judged.kind === 'key_refused') return { outcome: 'key_rejected' };
    if (judged.kind === 'asked_to_wait') throw judged.problem;
    if (!message.whole) return { outcome: 'taken' };
    body = bodyOf(response);
    return { outcome: 'answered', seen: await observeStream(body, sentAt) };
  } finally {
    clearTimeout(patience);
    clearTimeout(deadline);
    stop.signal.removeEventListener('abort', close);
    response?.close();
  }
}

const NO_ANSWER = new Problem('upstream_timeout', 'The bot service did not begin to answer in time.');
const TOO_LONG = new Problem('deadline_exceeded', 'The answer took longer than MAX_EXECUTION_MS.');
const NO_SLOT = new Problem('rate_limited', 'The bot had no slot free for the check.');

async function mayGoAgain(error: unknown, slot: EndpointSlot, slots: SlotWaits): Promise<boolean> {
  if (!(error instanceof Problem) || error.code !== 'upstream_rate_limited') return false;
  const askedMs = (error.options.retryAfter ?? 1) * 1000;
  return (await slots.takeAgain(slot, askedMs, new AbortController().signal)) === 0;
}

/** What a client in the field would send, in a conversation of its own. */
export function messageBody(text: string): Buffer {
  const customChannelId = `bot-relay-check-${randomUUID()}`;
  return Buffer.from(
    JSON.stringify({ customChannelId, customMessageId: randomUUID(), text, action: 'NONE' }),
  );
}

/** The path of a message to the bot `namespace/bot`, behind `prefix`. */
export function pathFor(prefix: string, bot: string): string {
  const [namespace = '', botProviderName = ''] = bot.split('/');
  return messagePath(prefix, { namespace, botProviderName });
}

function requestFor({ bot, text }: TestMessage, { upstream }: Config) {
  const body = messageBody(text);
  return {
    path: pathFor((upstream.baseUrl as Readonly<URL>).pathname.replace(/\/+$/, ''), bot),
    headers: {
      'content-type': 'application/json',
      'content-length': String(body.length),
      accept: 'text/event-stream',
      'accept-encoding': 'identity',
      'x-request-id': randomUUID(),
      ...(upstream.userHeader && { [upstream.userHeader]: 'bot-relay-check' }),
    },
    body,
  };
}
