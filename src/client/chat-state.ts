import type { MessageState, Session } from './bot-client.ts';
import { oncePerFrame } from './once-per-frame.ts';
import type { RelayError } from './relay-error.ts';

/** One line of a conversation: a new object whenever it has changed, the same one as long as it has not. */
export interface ChatMessage {
  readonly id: number;
  readonly from: 'user' | 'bot';
  readonly text: string;
  /** Of a bot's message: where it stands. `stopped` was by the user, `failed` has an `error`. */
  readonly state: MessageState | 'stopped' | 'failed';
  readonly error?: RelayError | undefined;
  /** Of a bot's message: finds it in the relay's log. */
  readonly requestId?: string | undefined;
}

/** Everything that a page shows; a new object whenever something has changed. */
export interface Snapshot {
  readonly messages: readonly ChatMessage[];
  /** `waiting` while a message is sent and not answered, `streaming` while an answer comes. */
  readonly status: 'idle' | 'waiting' | 'streaming';
  /** Why the last message, sign-in or sign-out failed. */
  readonly error: RelayError | undefined;
  /** Undefined until it is known, null if nobody is signed in. */
  readonly session: Session | null | undefined;
}

/** What is shown, and what will be in the next frame. */
export interface ChatState {
  readonly listeners: Set<() => void>;
  snapshot(): Snapshot;
  change(changes: Partial<Pick<Snapshot, 'error' | 'session'>>): void;
  add(...added: readonly ChatMessage[]): void;
  /** Puts a message in the place of the one with its id; does nothing if there is none any more. */
  replace(message: ChatMessage): void;
  removeAll(): void;
}

/** A state whose listeners are told at most once per frame. */
export function chatState(): ChatState {
  const listeners = new Set<() => void>();
  const underWay = new Map<number, ChatMessage['state']>();
  let shown: Snapshot = { messages: [], status: 'idle', error: undefined, session: undefined };
  let next = shown;
  const show = oncePerFrame(() => {
    shown = next = { ...next, status: statusOf([...underWay.values()]) };
    for (const listener of listeners) listener();
  });
  function change(changes: Partial<Snapshot>): void {
    next = { ...next, ...changes };
    show();
  }
  /** The list to change: copied once per frame, not for each event. */
  function draft(): ChatMessage[] {
    const { messages } = next;
    return messages === shown.messages ? [...messages] : (messages as ChatMessage[]);
  }
  return {
    listeners,
    snapshot: () => shown,
    change,
    add(...added) {
      for (const { id, state } of added) if (state !== 'done') underWay.set(id, state);
      change({ messages: [...next.messages, ...added] });
    },
    replace(message) {
      const { id, state } = message;
      const at = next.messages.findLastIndex((one) => one.id === id);
      if (at < 0) return;
      if (state === 'waiting' || state === 'streaming') underWay.set(id, state);
      else underWay.delete(id);
      const messages = draft();
      messages[at] = message;
      change({ messages });
    },
    removeAll() {
      underWay.clear();
      change({ messages: [] });
    },
  };
}

function statusOf(states: readonly ChatMessage['state'][]): Snapshot['status'] {
  if (states.includes('streaming')) return 'streaming';
  return states.length > 0 ? 'waiting' : 'idle';
}
