import { randomUUID } from 'node:crypto';
import type { Ask, Brain } from '../brains/steps.ts';
import type { EventSource } from '../store/bot-event.ts';
import type { Channel } from '../store/channel.ts';
import { openRun } from '../store/run.ts';
import { beginStream } from './answers.ts';
import { executeRun } from './execute-run.ts';
import { type ReadMessage, readMessage } from './read-message.ts';
import { Refusal } from './refusal.ts';
import { resumeRun } from './resume-run.ts';
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
  if (!service.countMessage(projectId)) return refuseForToday(call, source);
  const channel = channelFor(call, message, requestId);
  const ask = takeMessage(call, { message, channel, source });
  const run = openRun(requestId, res);
  // Nobody could ask for the rest of it.
  if (!channel) res.once('close', () => run.stop.abort());
  channel?.addRun(run);
  beginStream(res, requestId);
  run.follow(res, () => res.end());
  const { maxExecutionMs } = service;
  await executeRun({ run, brain, ask, channel, source, maxExecutionMs });
}

const DAILY_LIMIT = {
  code: 'DAILY_LIMIT_REACHED',
  message: 'This project has had all the messages that it may have today. Try again tomorrow.',
};

/** Answers a message over the daily cap: in-band, since a client would send it again after a 429. Nothing is kept. */
async function refuseForToday({ res, service, brain }: ServiceCall, source: EventSource): Promise<void> {
  const run = openRun(source.requestId, res);
  const refusing: Brain = {
    ...brain,
    async *answer() {
      yield { error: DAILY_LIMIT };
    },
  };
  const ask: Ask = { kind: 'message', text: '', isAllowed: false, files: [], turns: [] };
  beginStream(res, source.requestId);
  run.follow(res, () => res.end());
  const { maxExecutionMs } = service;
  await executeRun({ run, brain: refusing, ask, channel: undefined, source, maxExecutionMs });
}

/** The channel of a message; empty again if the message resets it. */
function channelFor(
  { service, endpoint, brain }: ServiceCall,
  { customChannelId, action, blobIds }: ReadMessage,
  runId: string,
): Channel | undefined {
  if ((customChannelId ?? undefined) === undefined)
    return brain.isResumable ? service.channels.makeNameless(runId) : undefined;
  const id = channelId(customChannelId);
  if (action === 'RESET_CHANNEL') {
    // They would be deleted before the message could use them.
    if (blobIds.length > 0) throw new Refusal('INVALID_MESSAGE');
    service.channels.clear(endpoint, id);
  }
  if (action === 'RESPONSE_TOOL_CALL_CONSENT') return service.channels.find(endpoint, id);
  return service.channels.findOrMake(endpoint, id);
}

interface Taking {
  readonly message: ReadMessage;
  readonly channel: Channel | undefined;
  readonly source: EventSource;
}

/** What the bot is asked. The user's message is kept in the channel. */
function takeMessage({ query, service }: ServiceCall, { message, channel, source }: Taking): Ask {
  const isConsent = message.action === 'RESPONSE_TOOL_CALL_CONSENT';
  const isConsented = isConsent && takeConsent(channel, message);
  const bypasses = query.get('bypass_tool_call_consent') === 'true';
  const isAllowed = isConsented || bypasses || channel?.allowsTools === true;
  const files = message.blobIds.map((id) => {
    const blob = channel && service.blobs.find(channel, id);
    if (!blob) throw new Refusal('BLOB_NOT_FOUND');
    return blob;
  });
  if (channel) channel.pendingConsent = undefined;
  const text = typeof message.text === 'string' ? message.text : '';
  const asked = { text, isAllowed, files, turns: [] };
  if (isConsent) return { kind: 'consent', ...asked };
  if (text === '' && files.length === 0) return { kind: 'nudge', ...asked };
  if (channel) keepMessage(channel, { message, text, source });
  return { kind: 'message', ...asked };
}

/** Keeps what the user says. It is sent to those who ask for the history, and not in the message's own stream. */
function keepMessage(
  channel: Channel,
  { message, text, source }: Pick<Taking, 'message' | 'source'> & { readonly text: string },
): void {
  const { customMessageId = '', blobIds } = message;
  const messageUser = { messageId: randomUUID(), text, customMessageId, blobIds };
  channel.keep('asgard.message.user', { source, fact: { messageUser } });
  if (text !== '') channel.title ??= text.slice(0, MAX_TITLE).toWellFormed();
}

/**
 * Takes the user's answer to the tool call that waits in the channel; returns whether it may be made.
 * @throws Refusal `NO_CONSENT_PENDING` if no call waits, or if another one is answered
 */
function takeConsent(
  channel: Channel | undefined,
  { toolCallConsents }: Pick<ReadMessage, 'toolCallConsents'>,
): boolean {
  const pending = channel?.pendingConsent?.pendingCalls ?? [];
  const results = pending.map(
    ({ toolCallId }) => toolCallConsents.find((one) => one.toolCallId === toolCallId)?.result,
  );
  if (!channel || results.length === 0 || results.includes(undefined))
    throw new Refusal('NO_CONSENT_PENDING');
  channel.allowsTools ||= results.includes('ALLOW_ALWAYS');
  return !results.includes('DENY_ONCE');
}
