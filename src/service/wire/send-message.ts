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
  const checked = checkMessage(call, message);
  const begun = service.channels.transaction(() =>
    service.countMessage(projectId) ? beginRun(call, { message, checked, source }) : REFUSED,
  );
  const { channel } = begun;
  const run = openRun(requestId, res);
  // Nobody could ask for the rest of it.
  if (!channel) res.once('close', () => run.stop.abort());
  channel?.live.add(run);
  beginStream(res, requestId);
  run.follow(res, () => res.end());
  const { maxExecutionMs } = service;
  await executeRun({ run, brain, source, maxExecutionMs, ...begun });
}

/** How a run begins: what the bot is asked, and the channel that keeps its messages, if there is one. */
interface Begun {
  readonly ask: Ask;
  readonly channel: Channel | undefined;
  /** What answers instead of the bot. */
  readonly brain?: Brain;
}

/** A message over the daily cap is refused in-band, since a client would send it again after a 429. */
const REFUSED: Begun = {
  ask: { kind: 'message', text: '', isAllowed: false, files: [], turns: [] },
  channel: undefined,
  brain: {
    isResumable: false,
    hasSandbox: false,
    metadata: {},
    async *answer() {
      yield {
        error: {
          code: 'DAILY_LIMIT_REACHED',
          message: 'This project has had all the messages that it may have today. Try again tomorrow.',
        },
      };
    },
  },
};

/** What a message says, once it is sure that it can be taken. */
interface Checked extends Pick<Ask, 'kind' | 'text' | 'files'> {
  /** Undefined for a message without a channel. */
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
    id,
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

interface Beginning {
  readonly message: ReadMessage;
  readonly checked: Checked;
  readonly source: EventSource;
}

/** Writes all with which a run begins: its row, and what the user says. */
function beginRun(call: ServiceCall, { message, checked, source }: Beginning): Begun {
  const { kind, text, files, isConsented, allowsTools } = checked;
  const channel = channelFor(call, { message, id: checked.id, runId: source.requestId });
  const isBypassed = call.query.get('bypass_tool_call_consent') === 'true';
  if (allowsTools) channel?.allowTools();
  const isAllowed = isConsented || isBypassed || channel?.state().allowsTools === true;
  const ask: Ask = { kind, text, isAllowed, files, turns: channel?.turns.all() ?? [] };
  if (!channel) return { ask, channel };
  channel.setPendingConsent(undefined);
  channel.runs.begin(source.requestId);
  if (kind === 'message') keepMessage(channel, { message, text, source });
  return { ask, channel };
}

/** The channel of a message; empty again if the message resets it. */
function channelFor(
  call: ServiceCall,
  { message, id, runId }: { message: ReadMessage; id: string | undefined; runId: string },
): Channel | undefined {
  const { channels } = call.service;
  if (id === undefined) return call.brain.isResumable ? channels.makeNameless(runId) : undefined;
  const cleared = message.action === 'RESET_CHANNEL' ? channels.clear(call, id) : undefined;
  return cleared ?? channels.findOrMake(call, id);
}

/** Keeps what the user says. It is sent to those who ask for the history, and not in the message's own stream. */
function keepMessage(
  channel: Channel,
  { message, text, source }: Pick<Beginning, 'message' | 'source'> & { readonly text: string },
): void {
  const { customMessageId = '', blobIds } = message;
  const messageUser = { messageId: randomUUID(), text, customMessageId, blobIds };
  channel.kept.add({ eventType: 'asgard.message.user', source, fact: { messageUser } });
  if (text !== '') channel.giveTitle(text.slice(0, MAX_TITLE).toWellFormed());
}
