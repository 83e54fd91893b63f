import { randomUUID } from 'node:crypto';
import { type EventSource, eventText } from '../store/bot-event.ts';
import type { Channel } from '../store/channel.ts';
import { beginStream } from './answers.ts';
import { runEndText } from './run-events.ts';
import { channelOf, type ServiceCall } from './service-call.ts';

/**
 * `GET message/sse`: what was said in a channel so far, or after `Last-Event-ID`; then what its open runs send, until
 * they are over. Without an open run, the stream ends as the last run did. The errors of runs stand where they came.
 * @throws Refusal
 */
export async function channelHistory(call: ServiceCall): Promise<void> {
  const { res, namespace, botProviderName, brain } = call;
  const channel = channelOf(call);
  const runs = channel.live.all();
  const last = channel.runs.last();
  const requestId = last?.id ?? randomUUID();
  const source = { requestId, namespace, botProviderName, customChannelId: channel.id };
  beginStream(res, requestId);
  writePast(call, { channel, source, endingRun: runs.length > 0 ? undefined : last?.id });
  let open = runs.length;
  for (const run of runs)
    run.follow(res, () => {
      open -= 1;
      if (open === 0) res.end();
    });
  if (open > 0) return;
  const { pendingConsent: toolCallConsent } = channel.state();
  if (toolCallConsent)
    res.write(eventText('asgard.tool_call.consent', { source, fact: { toolCallConsent } }));
  res.end(runEndText(source, brain, last?.failure));
}

interface Past {
  readonly channel: Channel;
  readonly source: EventSource;
  /** The run whose error ends the stream, if it has one. */
  readonly endingRun: string | undefined;
}

/** Writes what is kept, and the errors of those runs that ended while it was said. */
function writePast({ req, res, brain }: ServiceCall, { channel, source, endingRun }: Past): void {
  const lastEventId = Number(req.headers['last-event-id'] ?? 0);
  const kept = channel.kept.all();
  const oldest = kept[0]?.sequence ?? 0;
  const failed = channel.runs
    .failed()
    .filter(({ id, endedAfter }) => id !== endingRun && endedAfter >= oldest && !(endedAfter < lastEventId))
    .map(({ id, failure, endedAfter }) => ({
      endedAfter,
      text: runEndText({ ...source, requestId: id }, brain, failure),
    }));
  for (const { sequence, text } of kept) {
    while (failed[0] && failed[0].endedAfter < sequence) res.write(failed.shift()?.text);
    if (!(sequence <= lastEventId)) res.write(text);
  }
  for (const { text } of failed) res.write(text);
}
