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
   * False if there was nothing to ask; else it resolves with true after a round trip.
   * @throws Problem `stopped`, or `session_store_unavailable`: then the message must not be sent
   */
  leave(): Promise<true> | false;
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
   * sent any more. At other instances there may be more that are dropped: those that are not entered yet
   * (`ENTER_AFTER_MS`), and those that are about to be sent.
   * @throws Problem `session_store_unavailable` if those of the other instances may not be dropped
   */
  stop(place: UnsentPlace): Promise<number>;
}

/**
 * A message is entered into the store only if it waits longer than this, in ms, or up to twice as long: most messages
 * are sent at once.
 */
const ENTER_AFTER_MS = 10;

/** What all messages share. */
interface Shared {
  readonly store: UnsentStore;
  /** Those that a stop can drop, and that were not entered: they wait a moment only, or are being sent. */
  readonly fresh: Set<Message>;
  /** Those of them that are entered if they wait longer, in the order in which they came. */
  readonly toEnter: Set<Message>;
  /** The others that a stop can drop: those that were entered, by the names of their conversations. */
  readonly entered: Map<string, Set<Message>>;
  /** One for all, while any message waits. */
  timer: NodeJS.Timeout | undefined;
  readonly keyPart: (text: string) => string;
}

interface Message {
  readonly shared: Shared;
  readonly place: UnsentPlace;
  readonly stop: AbortController;
  /** Its conversation's name in the store, once that was asked for. */
  conversation: string | undefined;
  /** How it stands in the store; undefined if it does not. */
  entry: { readonly ticket: string; readonly entered: Promise<void> } | undefined;
  /** Since when it waits, by `performance.now()` in ms. */
  waitsSince: number;
}

const CANNOT_BE_STOPPED: UnsentMessage = { leave: () => false, sent() {}, refused() {}, close() {} };

/** Makes the collection, which is empty; `store` brings stops to other instances. */
export function unsentMessages(store: UnsentStore): UnsentMessages {
  const shared: Shared = {
    ...{ store, fresh: new Set(), toEnter: new Set(), entered: new Map() },
    ...{ timer: undefined, keyPart: rememberingKeyPart() },
  };
  store.listen((conversation) => {
    for (const message of unsentOf(shared, conversation)) drop(message);
  });
  return {
    add(place, stop) {
      if (!place) return CANNOT_BE_STOPPED;
      const message = { shared, place, stop, conversation: undefined, entry: undefined, waitsSince: 0 };
      enterLater(message);
      return controlsOf(message);
    },
    async stop(place) {
      const conversation = conversationName(shared, place);
      // The store decides about those that it knows.
      const others = unsentOf(shared, conversation).filter(({ entry }) => !entry);
      for (const message of others) drop(message);
      return others.length + (await store.stop(conversation));
    },
  };
}

function controlsOf(message: Message): UnsentMessage {
  const { toEnter } = message.shared;
  const finish = () => {
    forget(message);
    toEnter.delete(message);
    takeOut(message);
  };
  return {
    leave() {
      toEnter.delete(message);
      return message.entry !== undefined && leaveStore(message, message.entry);
    },
    sent: finish,
    refused: () => enterLater(message),
    close: finish,
  };
}

async function leaveStore(message: Message, entry: NonNullable<Message['entry']>): Promise<true> {
  await entry.entered;
  const mayLeave = await message.shared.store.leave(nameOf(message), entry.ticket);
  message.entry = undefined;
  if (!mayLeave) throw stopped();
  return true;
}

function unsentOf({ fresh, entered }: Shared, conversation: string): Message[] {
  const here = [...fresh].filter((message) => nameOf(message) === conversation);
  return [...here, ...(entered.get(conversation) ?? [])].filter(({ stop }) => !stop.signal.aborted);
}

/** No stop drops it any more. */
function forget(message: Message): void {
  const { shared, conversation } = message;
  // One that was entered has a name.
  if (shared.fresh.delete(message) || conversation === undefined) return;
  const same = shared.entered.get(conversation);
  if (same?.delete(message) && same.size === 0) shared.entered.delete(conversation);
}

function enterLater(message: Message): void {
  const { shared } = message;
  forget(message);
  message.waitsSince = performance.now();
  shared.fresh.add(message);
  shared.toEnter.delete(message);
  shared.toEnter.add(message);
  shared.timer ??= setInterval(enterWaiting, ENTER_AFTER_MS, shared).unref();
}

/** Enters those that have waited long enough. */
function enterWaiting(shared: Shared): void {
  const before = performance.now() - ENTER_AFTER_MS;
  for (const message of shared.toEnter) {
    if (message.waitsSince > before) return;
    shared.toEnter.delete(message);
    enter(message);
  }
  clearInterval(shared.timer);
  shared.timer = undefined;
}

/** If this fails, no stop can reach the message from another instance, so that it is refused. */
function enter(message: Message): void {
  const { store, fresh, entered: all } = message.shared;
  const name = nameOf(message);
  const same = all.get(name) ?? new Set();
  all.set(name, same.add(message));
  fresh.delete(message);
  const ticket = randomUUID();
  const entered = store.enter(name, ticket);
  message.entry = { ticket, entered };
  entered.catch((error) => {
    if (same.has(message)) message.stop.abort(error);
  });
}

/** If this fails, the store forgets it later. */
function takeOut(message: Message): void {
  const { entry } = message;
  message.entry = undefined;
  entry?.entered.then(() => message.shared.store.leave(nameOf(message), entry.ticket)).catch(() => {});
}

function drop(message: Message): void {
  message.shared.toEnter.delete(message);
  message.stop.abort(stopped());
}

function stopped(): Problem {
  return new Problem('stopped', 'The message was stopped before it was sent to the bot.');
}

/** Most messages leave before anybody asks for the name. */
function nameOf(message: Message): string {
  message.conversation ??= conversationName(message.shared, message.place);
  return message.conversation;
}

/** A hash, so that none of a conversation's ids stands in Redis. */
function conversationName({ keyPart }: Shared, { bot, channel }: UnsentPlace): string {
  return keyPart(JSON.stringify([bot, channel]));
}
