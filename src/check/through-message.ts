import type { IncomingMessage } from 'node:http';
import { heartbeatFinding } from './check-heartbeat.ts';
import { endingFinding } from './check-keys.ts';
import { problemOf } from './judge-answer.ts';
import { arrivalFinding } from './judge-arrival.ts';
import { observeStream } from './observe-stream.ts';
import { messageBody, pathFor } from './send-message.ts';
import { type Answer, headOf, textOf } from './through-client.ts';
import { reportHeaders, reportWrongAnswer, type Way } from './way.ts';

/** The relay itself ends a message at `MAX_EXECUTION_MS`; only what stands in between could keep it longer, in ms. */
const GRACE_MS = 10_000;

/** Sends a message with the session of `cookie` and looks at how its answer comes through the load balancer. */
export async function checkThroughMessage(way: Way, cookie: string): Promise<void> {
  const { config, client, base, message, report, onSend } = way;
  if (!message) return;
  const { maxExecutionMs, responseTimeoutMs } = config.upstream;
  onSend();
  const { response, sentAt } = await client.open({
    method: 'POST',
    path: pathFor(base, message.bot),
    cookie,
    json: messageBody(message.text),
    timeoutMs: responseTimeoutMs + config.rate.maxWaitMs + GRACE_MS,
  });
  const { status, headers } = headOf(response);
  if (status !== 200 || !/^text\/event-stream\b/i.test(headers['content-type'] ?? '')) {
    const answer = { status, headers, text: await textOf(response) };
    reportWrongAnswer(answer, { ...way, check: 'message', advice: adviceOn(answer) });
    return;
  }
  report({ state: 'ok', check: 'message', about: message.bot, says: 'is answered with a stream' });
  reportHeaders({ status, headers }, { ...way, kind: 'stream' });
  // Of a compressed stream nothing can be seen.
  if (headers['content-encoding']) response.destroy();
  else await reportStream(response, { ...way, sentAt, limitMs: maxExecutionMs + GRACE_MS });
}

async function reportStream(
  response: IncomingMessage,
  { sentAt, limitMs, ...way }: Way & { readonly sentAt: number; readonly limitMs: number },
): Promise<void> {
  const { report, quote, config, direct } = way;
  const tooLong = Object.assign(new Error('too long'), { code: 'ETIMEDOUT' });
  const timer = setTimeout(() => response.destroy(tooLong), limitMs);
  const seen = await observeStream(response, sentAt);
  clearTimeout(timer);
  report(endingFinding(seen, quote));
  if (seen.events === 0) return;
  const advice =
    'At the load balancer, turn off buffering and compression of responses (nginx: proxy_buffering off).';
  report(arrivalFinding(seen, { way: 'the load balancer', advice, direct }));
  report(heartbeatFinding(seen, config.upstream.heartbeatMs));
}

function adviceOn(answer: Answer): string {
  switch (problemOf(answer)?.code) {
    case 'upstream_key_rejected':
      return 'The running relay has other keys than this configuration: restart it, or send it SIGHUP.';
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
