import { consentResult, type ToolCallConsent } from '../channel/bot-conversation.ts';
import type { ConversationMessages } from '../channel/conversation-messages.ts';
import { isObject } from '../transport/known-events.ts';
import { RelayError } from '../transport/relay-error.ts';
import type { ChatMessage, ChatRequest } from './chat-types.ts';

/** What a request of a chat sends, in the bot's own form. */
export interface Outgoing {
  readonly members: object;
  /** Files that are uploaded before the message is sent, or ids of files that were uploaded. */
  readonly files: readonly (File | string)[];
  /** The message of the chat that is sent. */
  readonly messageId?: string;
  /** The message of the chat that its answer continues. */
  readonly continues?: string;
}

/** What to send for a request: what the user has said or decided last. @throws RelayError `unsupported` for all else */
export function outgoingOf(
  { trigger, messageId, messages, body }: Omit<ChatRequest, 'chatId' | 'abortSignal'>,
  mayRunAgain: (messageId: string) => boolean,
): Outgoing {
  const isNew = trigger === 'submit-message';
  const about = (isNew && messages.find(({ id }) => id === messageId)) || messages.at(-1);
  if (about?.role === 'assistant' && isNew)
    return { members: { ...body, ...consentsOf(about) }, files: [], continues: about.id };
  if (about?.role !== 'user') throw unsupported('There is nothing to send.');
  if (!isNew && !mayRunAgain(about.id))
    throw unsupported('The bot may have run, and cannot take an answer back.');
  if (isNew && messageId !== undefined) throw unsupported('A message that was sent cannot be changed.');
  const texts = about.parts.flatMap((part) => ('text' in part && part.type === 'text' ? [part.text] : []));
  const files = about.parts.filter(({ type }) => type === 'file').map(fileOf);
  return { members: { ...body, text: texts.join('\n\n') }, files, messageId: about.id };
}

/** Uploads the files that were not uploaded so far, and returns the ids of all. */
export async function blobIdsOf(
  files: Outgoing['files'],
  { talk, signal }: { readonly talk: ConversationMessages; readonly signal: AbortSignal | undefined },
): Promise<{ blobIds?: readonly string[] }> {
  if (files.length === 0) return {};
  const uploads = files.map((file) => (typeof file === 'string' ? file : talk.upload(file, { signal })));
  return { blobIds: await Promise.all(uploads) };
}

/** The file of a part, or its id at the bot service if it was uploaded. */
function fileOf(part: object): File | string {
  const { blobId, url, filename, mediaType: type }: Record<string, unknown> = { ...part };
  if (typeof blobId === 'string') return blobId;
  const head = /^data:[^,]*;base64,/.exec(`${url}`)?.[0];
  if (head === undefined) throw unsupported('Only files from this device can be sent.');
  const bytes = Uint8Array.from(atob(`${url}`.slice(head.length)), (char) => char.charCodeAt(0));
  return new File([bytes], `${filename ?? 'file'}`, { type: `${type}` });
}

/** What the user has decided about the tool calls of the last run in this message. */
function consentsOf({ parts }: ChatMessage): object {
  const lastStep = parts.slice(parts.map(({ type }) => type).lastIndexOf('step-start') + 1);
  const toolCallConsents = lastStep.flatMap((part): ToolCallConsent[] => {
    const { state, toolCallId, approval }: Record<string, unknown> = { ...part };
    if (state === 'approval-requested') throw unsupported('Another tool call still waits for the user.');
    if (state !== 'approval-responded' || !isObject(approval)) return [];
    const allow = approval.reason === 'always' ? 'always' : true;
    return [{ toolCallId: `${toolCallId}`, result: consentResult(approval.approved ? allow : false) }];
  });
  if (toolCallConsents.length === 0) throw unsupported('There is nothing to send.');
  return { action: 'RESPONSE_TOOL_CALL_CONSENT', toolCallConsents };
}

function unsupported(message: string): RelayError {
  return new RelayError(message, { code: 'unsupported', status: 0 });
}
