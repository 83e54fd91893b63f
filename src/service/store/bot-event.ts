/** What every event says of its run. */
export interface EventSource {
  readonly requestId: string;
  readonly namespace: string;
  readonly botProviderName: string;
  readonly customChannelId: unknown;
}

export type EventType =
  | 'asgard.run.init'
  | 'asgard.run.done'
  | 'asgard.run.error'
  | 'asgard.message.start'
  | 'asgard.message.delta'
  | 'asgard.message.complete'
  | 'asgard.message.user'
  | 'asgard.message.feedback'
  | 'asgard.tool_call.start'
  | 'asgard.tool_call.complete'
  | 'asgard.tool_call.consent';

/** One event as it stands in a stream, in the shape of the field. Only what is kept has an `id` and a time. */
export function eventText(
  eventType: EventType,
  { source, fact, kept }: { source: EventSource; fact: object; kept?: { id: string; createdAt: Date } },
): string {
  const { requestId, namespace, botProviderName, customChannelId } = source;
  const { id, ...times } = kept ?? {};
  const event = { eventType, requestId, namespace, botProviderName, customChannelId, ...times, fact };
  const idLine = id === undefined ? '' : `id: ${id}\n`;
  return `${idLine}event: ${eventType}\ndata: ${JSON.stringify(event)}\n\n`;
}
