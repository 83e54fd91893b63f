import type { BotClient, BotEvent, MessageState, Session } from './bot-client.ts';
import { RelayError } from './relay-error.ts';

/** One line of a conversation. */
export interface ChatMessage {
  readonly id: number;
  readonly from: 'user' | 'bot';
  readonly text: string;
  /** Of a bot's message: where it stands. `stopped` was by the user, `failed` has an `error`. */
  readonly state: MessageState | 'stopped' | 'failed';
  readonly error?: RelayError | undefined;
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

export interface ConversationOptions {
  /** What an event adds to the answer's text, or the whole text so far. By default as the bot service writes it. */
  readonly read?: (event: BotEvent) => { readonly add: string } | { readonly text: string } | undefined;
}

/** A conversation with one bot, of which whoever subscribed is told at most once per frame. */
export interface Conversation {
  subscribe(listener: () => void): () => void;
  snapshot(): Snapshot;
  /** Resolves when the answer is over, however it ended. */
  send(text: string): Promise<void>;
  /** Stops every answer that is under way. */
  stop(): void;
  signIn(username: string, password: string): Promise<void>;
  signOut(): Promise<void>;
  /** Asks the relay who is signed in. */
  refresh(): Promise<void>;
}

/** A frame that does not come, because the page is hidden, is not waited for longer than this, in ms. */
const LONGEST_FRAME_MS = 250;

/** Keeps a conversation for a page, whatever draws it. */
export function conversation(client: BotClient, { read = readFact }: ConversationOptions = {}): Conversation {
  const listeners = new Set<() => void>();
  const running = new Set<AbortController>();
  let current: Snapshot = { messages: [], status: 'idle', error: undefined, session: undefined };
  let shown = current;
  let ids = 0;
  const tell = oncePerFrame(() => {
    shown = current;
    for (const listener of listeners) listener();
  });
  function change(changes: Partial<Snapshot>): void {
    const messages = changes.messages ?? current.messages;
    current = { ...current, ...changes, status: statusOf(messages) };
    tell();
  }
  function changeMessage(id: number, changes: Partial<ChatMessage>): void {
    change({ messages: current.messages.map((one) => (one.id === id ? { ...one, ...changes } : one)) });
  }
  /** Does it, and keeps the error for the page. */
  async function attempt(work: () => Promise<Session | null | undefined>): Promise<void> {
    try {
      const session = await work();
      change({ session: session ?? null, error: undefined });
    } catch (error) {
      change({ error: asRelayError(error) });
    }
  }
  client.addEventListener('signed-out', () => change({ session: null }));

  return {
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    snapshot: () => shown,
    async send(text) {
      const abort = new AbortController();
      running.add(abort);
      const asked: ChatMessage = { id: ++ids, from: 'user', text, state: 'done' };
      const answer: ChatMessage = { id: ++ids, from: 'bot', text: '', state: 'waiting' };
      change({ messages: [...current.messages, asked, answer], error: undefined });
      const { id } = answer;
      let answered = '';
      const stream = client.send(text, {
        signal: abort.signal,
        onState: (state) => state !== 'done' && changeMessage(id, { state, requestId: stream.requestId }),
      });
      try {
        for await (const event of stream) {
          const step = read(event);
          if (step === undefined) continue;
          answered = 'add' in step ? answered + step.add : step.text;
          changeMessage(id, { text: answered });
        }
        changeMessage(id, { state: 'done' });
      } catch (thrown) {
        if (abort.signal.aborted) changeMessage(id, { state: 'stopped' });
        else {
          const error = asRelayError(thrown);
          changeMessage(id, { state: 'failed', error, requestId: error.requestId ?? stream.requestId });
          change({ error });
        }
      } finally {
        running.delete(abort);
      }
    },
    stop() {
      for (const abort of running) abort.abort();
    },
    signIn: (username, password) => attempt(() => client.signIn(username, password)),
    signOut: () => attempt(async () => void (await client.signOut())),
    refresh: () => attempt(() => client.session()),
  };
}

function statusOf(messages: readonly ChatMessage[]): Snapshot['status'] {
  if (messages.some(({ state }) => state === 'streaming')) return 'streaming';
  return messages.some(({ state }) => state === 'waiting') ? 'waiting' : 'idle';
}

function asRelayError(error: unknown): RelayError {
  if (error instanceof RelayError) return error;
  return new RelayError(String((error as Error)?.message ?? error), {
    code: 'unexpected_response',
    status: 0,
  });
}

/** Calls `act` in the next frame, however often it is asked for before that. */
function oncePerFrame(act: () => void): () => void {
  const { requestAnimationFrame: nextFrame } = globalThis as {
    requestAnimationFrame?: (act: () => void) => void;
  };
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    const once = () => {
      if (!asked) return;
      clearTimeout(timer);
      asked = false;
      act();
    };
    const timer = setTimeout(once, LONGEST_FRAME_MS);
    if (nextFrame) nextFrame(once);
    else setTimeout(once);
  };
}

interface Fact {
  readonly fact?: Readonly<Record<string, { readonly message?: { readonly text?: unknown } } | null>>;
}

/** The kinds of events that bots write; others add nothing. */
function readFact({ data }: BotEvent): { add: string } | { text: string } | undefined {
  const { messageDelta, messageComplete } = (data as Fact | null)?.fact ?? {};
  const [delta, whole] = [messageDelta?.message?.text, messageComplete?.message?.text];
  if (typeof delta === 'string') return { add: delta };
  return typeof whole === 'string' ? { text: whole } : undefined;
}
