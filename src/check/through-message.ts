import type { IncomingMessage } from 'node:http';
import { heartbeatFinding } from './check-heartbeat.ts';
import { endingFinding } from './check-keys.ts';
import type { Conversation } from './conversation.ts';
import { problemOf } from './judge-answer.ts';
import { arrivalFinding } from './judge-arrival.ts';
import { type Observation, observeStream } from './observe-stream.ts';
import { messageBody, pathFor } from './send-message.ts';
import { headOf, textOf } from './through-client.ts';
import { reportHeaders, reportWrongAnswer, type ThroughContext } from './through-context.ts';

/** How much longer than the relay's own limits the check waits for an answer, in ms. */
export const GRACE_MS = 10_000;

/** The first message of a conversation, in the session of `cookie`. */
export interface FirstMessage {
  readonly cookie: string;
  readonly conversation: Conversation;
  /** Called with the id of the run, as soon as it stands in the stream. */
  readonly onRun: (requestId: string) => void;
}

/**
 * Sends a message, if one is to be sent, and checks how its answer comes through the load
 * balancer. Returns false if it was refused or has failed, so that no other operation is worth trying.
 */
export async function checkThroughMessage(
  context: ThroughContext,
  { cookie, conversation, onRun }: FirstMessage,
): Promise<boolean> {
  const { config, client, base, bot, text, report, onSend } = context;
  if (bot === undefined || text === undefined) return true;
  const { maxExecutionMs, responseTimeoutMs } = config.upstream;
  onSend();
  const { response, sentAt } = await client.open({
    method: 'POST',
    path: pathFor(base, bot),
    cookie,
    json: messageBody(text, conversation),
    timeoutMs: responseTimeoutMs + config.rate.maxWaitMs + GRACE_MS,
  });
  const { status, headers } = headOf(response);
  if (status !== 200 || !/^text\/event-stream\b/i.test(headers['content-type'] ?? '')) {
    const answer = { status, headers, text: await textOf(response) };
    const code = problemOf(answer)?.code;
    reportWrongAnswer(answer, { ...context, check: 'message', advice: adviceOn(code) });
    return code === 'operation_not_enabled';
  }
  // Events cannot be seen in a compressed stream.
  const isSeen = !headers['content-encoding'];
  const limitMs = maxExecutionMs + GRACE_MS;
  const seen = isSeen ? await observe(response, { sentAt, onRun, limitMs }) : undefined;
  if (!isSeen) response.destroy();
  if (seen?.failure) {
    const { status, code } = seen.failure;
    const says = `answered with ${context.quote(`${status} ${code}`)}`;
    report({ state: 'problem', check: 'message', says, advice: adviceOn(code) });
    return false;
  }
  conversation.isBegun = true;
  report({ state: 'ok', check: 'message', about: bot, says: 'is answered with a stream' });
  reportHeaders({ status, headers }, { ...context, kind: 'stream' });
  if (seen) reportStream(seen, context);
  return true;
}

interface Observing extends Pick<FirstMessage, 'onRun'> {
  readonly sentAt: number;
  readonly limitMs: number;
}

async function observe(
  response: IncomingMessage,
  { sentAt, limitMs, onRun }: Observing,
): Promise<Observation> {
  const tooLong = Object.assign(new Error('too long'), { code: 'ETIMEDOUT' });
  const timer = setTimeout(() => response.destroy(tooLong), limitMs);
  const seen = await observeStream(response, sentAt, onRun);
  clearTimeout(timer);
  return seen;
}

function reportStream(seen: Observation, { report, quote, config, direct }: ThroughContext): void {
  report(endingFinding(seen, quote));
  if (seen.events === 0) return;
  const advice =
    'At the load balancer, turn off buffering and compression of responses (nginx: proxy_buffering off).';
  report(arrivalFinding(seen, { between: 'the load balancer', advice, direct }));
  report(heartbeatFinding(seen, config.upstream.heartbeatMs));
}

function adviceOn(code: string | undefined): string {
  switch (code) {
    case 'upstream_key_rejected':
      return 'The running relay has other keys than this configuration: restart it, or send it SIGHUP.';
    case 'operation_not_enabled':
      return 'The running relay has other OPERATIONS, or another BOTS_FILE, than this configuration: restart it.';
    case 'unknown_bot':
      return 'The running relay has other BOTS than this configuration: restart it.';
    case 'rate_limited':
    case 'upstream_rate_limited':
      return 'The bot is busy: try again.';
    case undefined:
      return 'This is no answer of the relay: look at the load balancer, and at the time it waits for an answer.';
    default:
      return 'Look for this message in the log of the relay.';
  }
}
