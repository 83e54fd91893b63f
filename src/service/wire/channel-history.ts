import { randomUUID } from 'node:crypto';
import { eventText } from '../store/bot-event.ts';
import { beginStream } from './answers.ts';
import { channelOf, type ServiceCall } from './service-call.ts';

/**
 * `GET message/sse`: what was said in a channel so far, or after `Last-Event-ID`; then what its open runs send, until
 * they are over. Without an open run, the stream ends with `asgard.run.done`.
 * @throws Refusal
 */
export function channelHistory(call: ServiceCall): void {
  const { req, res, namespace, botProviderName } = call;
  const channel = channelOf(call);
  const lastEventId = Number(req.headers['last-event-id'] ?? 0);
  const runs = channel.runs.filter(({ isOver }) => !isOver);
  const requestId = channel.runs.at(-1)?.id ?? randomUUID();
  beginStream(res, requestId);
  for (const { sequence, text } of channel.kept) if (!(sequence <= lastEventId)) res.write(text);
  let open = runs.length;
  for (const run of runs)
    run.follow(res, () => {
      open -= 1;
      if (open === 0) res.end();
    });
  if (open > 0) return;
  const source = { requestId, namespace, botProviderName, customChannelId: channel.id };
  const { pendingConsent: toolCallConsent } = channel;
  if (toolCallConsent)
    res.write(eventText('asgard.tool_call.consent', { source, fact: { toolCallConsent } }));
  res.end(eventText('asgard.run.done', { source, fact: { runDone: {} } }));
}
