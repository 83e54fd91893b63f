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

/** One event as it stands in a stream, in the shape of the field. Only what is kept has an `id`. */
export function eventText(
  eventType: EventType,
  { source, fact, id }: { source: EventSource; fact: object; id?: string | undefined },
): string {
  const { requestId, namespace, botProviderName, customChannelId } = source;
  const event = { eventType, requestId, namespace, botProviderName, customChannelId, fact };
  const idLine = id === undefined ? '' : `id: ${id}\n`;
  return `${idLine}event: ${eventType}\ndata: ${JSON.stringify(event)}\n\n`;
}
