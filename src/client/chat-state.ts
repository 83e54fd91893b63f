import type { MessageState, Session } from './bot-client.ts';
import { oncePerFrame } from './once-per-frame.ts';
import type { RelayError } from './relay-error.ts';

/** One message of a conversation. It is never changed in place: a change makes a new object. */
export interface ChatMessage {
  readonly id: number;
  readonly from: 'user' | 'bot';
  readonly text: string;
  /** A user's message is always `done`. `stopped`: by the user. `failed`: `error` says why. */
  readonly state: MessageState | 'stopped' | 'failed';
  readonly error?: RelayError | undefined;
  /** The files of a user's message; undefined if there are none. */
  readonly blobIds?: readonly string[];
  /** The id of a bot's message in the relay's log. */
  readonly requestId?: string | undefined;
}

/** Everything that a page shows. It is never changed in place: a change makes a new object. */
export interface Snapshot {
  readonly messages: readonly ChatMessage[];
  /** `waiting`: a message is sent and not yet answered. `streaming`: an answer arrives. */
  readonly status: 'idle' | 'waiting' | 'streaming';
  /** Why the last message, sign-in, sign-out, upload or stop failed, or why nothing earlier is shown. */
  readonly error: RelayError | undefined;
  /** Undefined until it is known, null if nobody is signed in. */
  readonly session: Session | null | undefined;
}

/** The state of a chat page: what it shows now, and the changes for the next frame. */
export interface ChatState {
  readonly listeners: Set<() => void>;
  snapshot(): Snapshot;
  /** The id for a new message. */
  newId(): number;
  change(changes: Partial<Pick<Snapshot, 'error' | 'session'>>): void;
  add(...added: readonly ChatMessage[]): void;
  /** Adds a message of the conversation's past, above those that `add` has added. */
  addPast(message: ChatMessage): void;
  /** Replaces the message with the same id; does nothing if it was removed. */
  replace(message: ChatMessage): void;
  removeAll(): void;
}

/** What the next frame shows. Its list belongs to it alone, unless it is that of the frame that is shown. */
type NextSnapshot = Omit<Snapshot, 'messages'> & { readonly messages: ChatMessage[] };

/** A state that calls its listeners at most once per frame. */
export function chatState(): ChatState {
  const listeners = new Set<() => void>();
  const underWay = new Map<number, ChatMessage['state']>();
  let lastId = 0;
  let past = 0;
  let next: NextSnapshot = { messages: [], status: 'idle', error: undefined, session: undefined };
  let shown: Snapshot = next;
  const draw = oncePerFrame(() => {
    shown = next = { ...next, status: statusOf([...underWay.values()]) };
    for (const listener of listeners) listener();
  });
  function change(changes: Partial<NextSnapshot>): void {
    next = { ...next, ...changes };
    draw();
  }
  return {
    listeners,
    snapshot: () => shown,
    newId: () => ++lastId,
    change,
    add(...added) {
      for (const { id, state } of added) if (state !== 'done') underWay.set(id, state);
      change({ messages: [...next.messages, ...added] });
    },
    addPast(message) {
      change({ messages: [...next.messages.slice(0, past), message, ...next.messages.slice(past)] });
      past += 1;
    },
    replace(message) {
      const { id, state } = message;
      let at = next.messages.length - 1;
      while (at >= 0 && next.messages[at]?.id !== id) at -= 1;
      if (at < 0) return;
      if (state === 'waiting' || state === 'streaming') underWay.set(id, state);
      else underWay.delete(id);
      // Copied once per frame, not for each event.
      if (next.messages === shown.messages) change({ messages: [...next.messages] });
      next.messages[at] = message;
    },
    removeAll() {
      underWay.clear();
      past = 0;
      change({ messages: [] });
    },
  };
}

function statusOf(states: readonly ChatMessage['state'][]): Snapshot['status'] {
  if (states.includes('streaming')) return 'streaming';
  return states.length > 0 ? 'waiting' : 'idle';
}
