import { randomUUID } from 'node:crypto';
import type { Ask } from '../brains/steps.ts';
import { type EventSource, eventText } from '../store/bot-event.ts';
import type { Channel } from '../store/channel.ts';
import type { StoredFile } from '../store/files.ts';
import { openRun } from '../store/run.ts';
import { beginStream, Refusal } from './answers.ts';
import { executeRun } from './execute-run.ts';
import { type ReadMessage, readMessage } from './read-message.ts';
import { resumeRun } from './resume-run.ts';
import { runEndText } from './run-events.ts';
import { channelId, type ServiceCall } from './service-call.ts';

const MAX_TITLE = 60;

/**
 * `POST message/sse`: runs the bot with a message and answers with the events of the run. With `Last-Event-ID`, nothing
 * is run: the answer is what came after that id. A run goes on after its reader has left, if its channel can be asked
 * for the rest.
 * @throws Refusal
 */
export async function sendMessage(call: ServiceCall): Promise<void> {
  const { req, res, service, projectId, brain, namespace, botProviderName } = call;
  const message = await readMessage(req);
  const lastEventId = req.headers['last-event-id'];
  const requestId = randomUUID();
  const { customChannelId = null } = message;
  const source: EventSource = { requestId, namespace, botProviderName, customChannelId };
  if (lastEventId) return resumeRun(call, { source, lastEventId: String(lastEventId) });
  const checked = checkMessage(call, message);
  const begun = service.channels.transaction(() =>
    service.countMessage(projectId) ? beginRun(call, checked, source) : undefined,
  );
  beginStream(res, requestId);
  if (!begun) return refuseForToday(call, source);
  const { channel } = begun;
  const run = openRun(requestId, res);
  // Nobody could ask for the rest of it.
  if (!channel) res.once('close', () => run.stop.abort());
  channel?.live.add(run);
  run.follow(res, () => res.end());
  const { maxExecutionMs, onFault } = service;
  await executeRun({ run, brain, source, maxExecutionMs, onFault, ...begun });
}

/** A message over the daily cap is refused in-band, since a client would send it again after a 429. */
function refuseForToday({ res, brain }: ServiceCall, source: EventSource): void {
  const code = 'DAILY_LIMIT_REACHED';
  const message = 'This project has had all the messages that it may have today. Try again tomorrow.';
  res.write(eventText('asgard.run.init', { source, fact: { runInit: {} } }));
  res.end(runEndText(source, brain, { code, message }));
}

/** A message, once it is sure that it can be taken. */
interface Checked extends Pick<Ask, 'kind' | 'text'> {
  readonly files: readonly StoredFile[];
  readonly message: ReadMessage;
  /** The id of its channel, if it has one. */
  readonly id: string | undefined;
  /** Whether the user allows the call that waits. */
  readonly isConsented: boolean;
  /** Whether the user allows the bot's tools for good. */
  readonly allowsTools: boolean;
}

/** Checks all for which a message can be refused. Nothing is changed. */
function checkMessage(call: ServiceCall, message: ReadMessage): Checked {
  const { customChannelId, action, blobIds } = message;
  const id = (customChannelId ?? undefined) === undefined ? undefined : channelId(customChannelId);
  // They would be deleted before the message could use them.
  if (id !== undefined && action === 'RESET_CHANNEL' && blobIds.length > 0)
    throw new Refusal('INVALID_MESSAGE');
  const channel = id === undefined ? undefined : call.service.channels.find(call, id);
  const isConsent = action === 'RESPONSE_TOOL_CALL_CONSENT';
  const results = isConsent ? consentResults(channel, message) : [];
  const files = blobIds.map((blobId) => {
    const file = channel?.files.find(blobId);
    if (!file) throw new Refusal('BLOB_NOT_FOUND');
    return file;
  });
  const text = typeof message.text === 'string' ? message.text : '';
  return {
    ...{ message, id },
    kind: isConsent ? 'consent' : text === '' && files.length === 0 ? 'nudge' : 'message',
    text,
    files,
    isConsented: isConsent && !results.includes('DENY_ONCE'),
    allowsTools: results.includes('ALLOW_ALWAYS'),
  };
}

/**
 * The user's answers to the tool calls that wait in the channel.
 * @throws Refusal `NO_CONSENT_PENDING` if no call waits, or if another one is answered
 */
function consentResults(
  channel: Channel | undefined,
  { toolCallConsents }: Pick<ReadMessage, 'toolCallConsents'>,
) {
  const pending = channel?.state().pendingConsent?.pendingCalls ?? [];
  const results = pending.map(
    ({ toolCallId }) => toolCallConsents.find((one) => one.toolCallId === toolCallId)?.result,
  );
  if (results.length === 0 || results.includes(undefined)) throw new Refusal('NO_CONSENT_PENDING');
  return results;
}

/** Writes all with which a run begins: its row, and what the user says. That is sent to those who ask for the history. */
function beginRun(call: ServiceCall, checked: Checked, source: EventSource) {
  const { message, kind, text, files, isConsented, allowsTools } = checked;
  const channel = channelFor(call, checked, source.requestId);
  const isBypassed = call.query.get('bypass_tool_call_consent') === 'true';
  if (allowsTools) channel?.allowTools();
  const isAllowed = isConsented || isBypassed || channel?.state().allowsTools === true;
  const ask: Ask = { kind, text, isAllowed, files, turns: channel?.turns.all() ?? [] };
  channel?.setPendingConsent(undefined);
  channel?.runs.begin(source.requestId);
  if (kind === 'message') {
    const { customMessageId = '', blobIds } = message;
    const blobs = files.map(({ id, name, type }) => ({
      blobId: id,
      fileName: name,
      ...(type && { mime: type }),
    }));
    const messageUser = { messageId: randomUUID(), text, customMessageId, blobIds, blobs };
    channel?.kept.add({ eventType: 'asgard.message.user', source, fact: { messageUser } });
    if (text !== '') channel?.giveTitle(text.slice(0, MAX_TITLE).toWellFormed());
  }
  return { ask, channel };
}

/** The channel of a message; empty again if the message resets it. */
function channelFor(call: ServiceCall, { message, id }: Checked, runId: string): Channel | undefined {
  const { channels } = call.service;
  if (id === undefined) return call.brain.isResumable ? channels.makeNameless(runId) : undefined;
  const cleared = message.action === 'RESET_CHANNEL' ? channels.clear(call, id) : undefined;
  return cleared ?? channels.findOrMake(call, id);
}
