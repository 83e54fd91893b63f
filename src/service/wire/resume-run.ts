import type { EventSource } from '../store/bot-event.ts';
import type { Channel } from '../store/channel.ts';
import { beginStream, Refusal } from './answers.ts';
import { runEndText } from './run-events.ts';
import type { ServiceCall } from './service-call.ts';

/** Where a resumption goes on. */
interface Place {
  readonly channel: Channel;
  /** The number of the last event that the client has seen. */
  readonly sequence: number;
}

/**
 * Answers with what a run sent after the event `lastEventId`, and with what it sends until it is over.
 * @throws Refusal `MESSAGE_NOT_FOUND` if no kept event has this id
 */
export function resumeRun(
  call: ServiceCall,
  { source, lastEventId }: { readonly source: EventSource; readonly lastEventId: string },
): void {
  const { res, brain } = call;
  const { channel, sequence } = placeOf(call, source.customChannelId, lastEventId);
  const kept = channel.kept.all();
  const runId = kept.find((one) => one.sequence === sequence)?.runId;
  if (runId === undefined) throw new Refusal('MESSAGE_NOT_FOUND');
  beginStream(res, runId);
  for (const one of kept) if (one.runId === runId && one.sequence > sequence) res.write(one.text);
  const run = channel.live.find(runId);
  const ended = { ...source, requestId: runId };
  if (run) run.follow(res, () => res.end());
  else res.end(runEndText(ended, brain, channel.runs.find(runId)?.failure));
}

function placeOf(call: ServiceCall, id: unknown, lastEventId: string): Place {
  const [, runId, number = ''] = /^(?:([0-9a-f-]{36})\.)?(\d{1,9})$/.exec(lastEventId) ?? [];
  const { channels } = call.service;
  const channel =
    runId === undefined ? channels.find(call, String(id)) : id === null && channels.findNameless(runId);
  if (!channel) throw new Refusal('MESSAGE_NOT_FOUND');
  return { channel, sequence: Number(number) };
}
