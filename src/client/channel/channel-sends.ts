import { randomId } from '../transport/calls.ts';
import { RelayError } from '../transport/relay-error.ts';
import { consentResult } from './bot-conversation.ts';
import type { ShownChannel } from './channel-answer.ts';
import type { ChannelRuns } from './channel-runs.ts';
import type { Channel, ChannelMessage, FilePart, MessagePart, NewMessage } from './channel-types.ts';

type AnsweredSend = Promise<ChannelMessage | undefined>;

interface Sends extends Pick<Channel, 'send' | 'regenerate' | 'consent'> {
  /** Drops the messages that wait for the end of an answer. */
  readonly drop: () => void;
}

/** Sends the messages of the user. While the channel is busy, they are refused, or wait until it is free. */
export function channelSends(shown: ShownChannel, runs: ChannelRuns, isBusy: () => boolean): Sends {
  const { state, options } = shown;
  const queue: ((isSent: boolean) => void)[] = [];
  function next(): void {
    if (isBusy()) return;
    queue.shift()?.(true);
    if (queue.length === 0) state.listeners.delete(next);
  }
  const post = (question: ChannelMessage, { text = '', files, ...members }: NewMessage): AnsweredSend => {
    state.replace({ ...question, state: 'done', metadata: { createdAt: Date.now() } });
    const body = { ...members, text, ...(files && { blobIds: files.map(({ blobId }) => blobId) }) };
    return runs.run((talk, to) => talk.send(body, to), question.id);
  };
  async function send(message: string | NewMessage): AnsweredSend {
    const body = typeof message === 'string' ? { text: message } : message;
    const mustWait = isBusy() || queue.length > 0;
    if (mustWait && options.whileBusy !== 'queue') {
      state.fail(new RelayError('An answer is still under way.', { code: 'busy', status: 0 }));
      return undefined;
    }
    const question = questionOf(body.text, body.files, mustWait ? 'queued' : 'done');
    state.add(question);
    if (!mustWait) return post(question, body);
    state.listeners.add(next);
    const isSent = await new Promise<boolean>((resolve) => queue.push(resolve));
    if (isSent) return post(question, body);
    state.replace({ ...question, state: 'stopped' });
    return undefined;
  }
  async function regenerate(id?: string): AnsweredSend {
    const all = state.messages();
    const upTo = id === undefined ? all : all.slice(0, all.findIndex((one) => one.id === id) + 1);
    const question = upTo.filter(({ role }) => role === 'user').at(-1);
    return question && send(bodyOf(question));
  }
  // A page in JavaScript can pass anything: what is thrown for it is shown, too.
  const attempt = (sent: AnsweredSend) => sent.catch((thrown) => void state.fail(thrown));
  return {
    send: (message) => attempt(send(message)),
    regenerate: (id) => attempt(regenerate(id)),
    consent: consenting(shown, runs),
    drop() {
      for (const resolve of queue.splice(0)) resolve(false);
    },
  };
}

/** Takes what the user has decided, and sends it when no tool call of the same answer waits any more. */
function consenting({ pending, state }: ShownChannel, runs: ChannelRuns): Channel['consent'] {
  return async (toolCallId, allow) => {
    const call = pending.get(toolCallId);
    if (!call) {
      state.fail(new RelayError('This tool call does not wait.', { code: 'missing', status: 0 }));
      return undefined;
    }
    const { answer } = call;
    call.result = consentResult(allow);
    answer.decide(toolCallId, allow !== false);
    const calls = [...pending].filter(([, one]) => one.answer === answer);
    const decided = calls.flatMap(([id, { result }]) => (result ? [{ toolCallId: id, result }] : []));
    if (decided.length < calls.length) return undefined;
    for (const [id] of calls) pending.delete(id);
    const reply = await runs.run((talk, to) => talk.consent(decided, to));
    if (reply.error?.retryable)
      for (const [id] of calls) {
        pending.set(id, { answer });
        answer.decide(id, undefined);
      }
    return reply;
  };
}

/** A message of the user. */
export function questionOf(
  text = '',
  files: readonly FilePart[] = [],
  state: ChannelMessage['state'] = 'done',
): ChannelMessage {
  const parts: MessagePart[] = [...(text === '' ? [] : [{ type: 'text', text } as const]), ...files];
  return { id: randomId(), role: 'user', parts, state, metadata: {} };
}

/** The message to send, if this message of the user is sent once more. */
function bodyOf({ parts }: ChannelMessage): NewMessage {
  const text = parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('');
  const files = parts.filter((part) => part.type === 'file');
  return files.length > 0 ? { text, files } : { text };
}
