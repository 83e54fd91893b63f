import { randomUUID } from 'node:crypto';
import { Problem } from '../errors.ts';
import { rememberingKeyPart } from '../storage/redis-key.ts';
import type { UnsentStore } from './unsent-store.ts';

/** A conversation at the bot service. */
export interface UnsentPlace {
  /** `namespace/bot`, since the service keeps conversations for each bot. */
  readonly bot: string;
  /** The id that the service knows. */
  readonly channel: string;
}

/** One message that a stop of its conversation drops as long as no byte of it has left for the bot service. */
export interface UnsentMessage {
  /**
   * Call it before the message is sent. From then on only its own instance, and what that hears of others, can drop it.
   * Resolves with whether that took a round trip.
   * @throws Problem `stopped`, or `session_store_unavailable`: then the message must not be sent
   */
  leave(): Promise<boolean>;
  /** Its first bytes have left: it is the service's now. */
  sent(): void;
  /** The service has refused it without beginning to run it, so that it waits again. */
  refused(): void;
  /** It is over. */
  close(): void;
}

/** The messages that have not left for the bot service yet. */
export interface UnsentMessages {
  /** Adds a message, unless `place` is undefined. If it is dropped, `stop` is aborted with Problem `stopped`. */
  add(place: UnsentPlace | undefined, stop: AbortController): UnsentMessage;
  /**
   * Drops all unsent messages of the conversation, here and at all instances. Resolves with how many of them can't be
   * sent any more. At other instances there may be more that are dropped: those that have waited for less than
   * `ENTER_AFTER_MS`, and those that are about to be sent.
   * @throws Problem `session_store_unavailable` if those of the other instances may not be dropped
   */
  stop(place: UnsentPlace): Promise<number>;
}

/** A message is entered into the store only if it waits longer than this, in ms: most messages are sent at once. */
const ENTER_AFTER_MS = 10;

interface Message {
  readonly store: UnsentStore;
  readonly conversation: string;
  readonly stop: AbortController;
  isUnsent: boolean;
  /** How it stands in the store; undefined if it does not. */
  entry: { readonly ticket: string; readonly entered: Promise<void> } | undefined;
  timer: NodeJS.Timeout | undefined;
}

const NO_PART: UnsentMessage = { leave: async () => false, sent() {}, refused() {}, close() {} };

/** Makes the collection, which is empty; `store` brings stops to other instances. */
export function unsentMessages(store: UnsentStore): UnsentMessages {
  const all = new Map<string, Set<Message>>();
  const nameOf = conversationNames();
  const unsentOf = (conversation: string) =>
    [...(all.get(conversation) ?? [])].filter(({ isUnsent, stop }) => isUnsent && !stop.signal.aborted);
  store.listen((conversation) => {
    for (const message of unsentOf(conversation)) drop(message);
  });
  return {
    add(place, stop) {
      if (!place) return NO_PART;
      const conversation = nameOf(place);
      const message: Message = {
        ...{ store, conversation, stop, isUnsent: true },
        ...{ entry: undefined, timer: undefined },
      };
      const messages = all.get(conversation) ?? new Set();
      all.set(conversation, messages.add(message));
      enterLater(message);
      return controlsOf(message, () => {
        messages.delete(message);
        if (messages.size === 0 && all.get(conversation) === messages) all.delete(conversation);
      });
    },
    async stop(place) {
      const conversation = nameOf(place);
      // The store decides about those that it knows.
      const others = unsentOf(conversation).filter(({ entry }) => !entry);
      for (const message of others) drop(message);
      return others.length + (await store.stop(conversation));
    },
  };
}

function controlsOf(message: Message, remove: () => void): UnsentMessage {
  const over = () => {
    message.isUnsent = false;
    clearTimeout(message.timer);
    takeOut(message);
  };
  return {
    async leave() {
      clearTimeout(message.timer);
      const { store, conversation, entry } = message;
      if (!entry) return false;
      await entry.entered;
      const mayLeave = await store.leave(conversation, entry.ticket);
      message.entry = undefined;
      if (!mayLeave) throw stopped();
      return true;
    },
    sent: over,
    refused() {
      message.isUnsent = true;
      enterLater(message);
    },
    close() {
      over();
      remove();
    },
  };
}

function enterLater(message: Message): void {
  clearTimeout(message.timer);
  message.timer = setTimeout(() => enter(message), ENTER_AFTER_MS);
}

/** If this fails, no stop can reach the message from another instance, so that it is refused. */
function enter(message: Message): void {
  const { store, conversation, stop } = message;
  const ticket = randomUUID();
  const entered = store.enter(conversation, ticket);
  message.entry = { ticket, entered };
  entered.catch((error) => {
    if (message.isUnsent) stop.abort(error);
  });
}

/** If this fails, the store forgets it later. */
function takeOut(message: Message): void {
  const { store, conversation, entry } = message;
  message.entry = undefined;
  entry?.entered.then(() => store.leave(conversation, entry.ticket)).catch(() => {});
}

function drop(message: Message): void {
  clearTimeout(message.timer);
  message.stop.abort(stopped());
}

function stopped(): Problem {
  return new Problem('stopped', 'The message was stopped before it was sent to the bot.');
}

/** Makes the function that names a conversation by a hash, so that none of their ids stands in Redis. */
function conversationNames(): (place: UnsentPlace) => string {
  const keyPart = rememberingKeyPart();
  return ({ bot, channel }) => keyPart(JSON.stringify([bot, channel]));
}
