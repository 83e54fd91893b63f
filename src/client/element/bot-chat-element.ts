import type { Channel, ChannelSnapshot } from '../channel/channel-types.ts';
import { createChannel } from '../channel/create-channel.ts';
import { lastBot } from '../channel/default-channel.ts';
import type { BotClient } from '../session/bot-client.ts';
import { followedSession } from '../session/followed-session.ts';
import { answerOf, caller } from '../transport/calls.ts';
import type { Draft } from './chat-dependencies.ts';
import { chatView } from './chat-view.ts';
import { chatsOf, clientOf } from './chats.ts';
import { button, newElement } from './dom.ts';
import { showError } from './error-text.ts';
import type { DemoUser, SignInMode } from './sign-in.ts';
import { chatStyle } from './style/chat-style.ts';
import { languageOf, type Words } from './words/words.ts';

const NAME = 'bot-chat';
/** The address of the relay for elements without `base-url`. */
let relay = '';

/** `HTMLElement`. A server that renders the page has none: there it is an empty class. */
const ElementBase: typeof HTMLElement = typeof HTMLElement === 'function' ? HTMLElement : Object(class {});

/**
 * The element `<bot-chat>`: a whole chat with one bot. Attributes: `base-url` (the relay), `bot` (`namespace/name`),
 * `channel` (the id of a conversation) and `lang`. It dispatches `bot-ready`, `bot-error` with the error as `detail`,
 * and `bot-signed-out`. Removing it stops no run.
 * @hideconstructor
 */
export class BotChatElement extends ElementBase {
  /** @internal */
  static readonly observedAttributes = ['base-url', 'bot', 'channel', 'lang'];
  #end = () => {};
  /** The bot that the user has chosen. */
  #bot: string | undefined;
  /** The number of the last start: one before it, which still waits for the relay, must show nothing. */
  #starts = 0;

  constructor() {
    super();
    this.attachShadow({ mode: 'open' }).adoptedStyleSheets = [chatStyle()];
  }

  /** @internal */
  connectedCallback(): void {
    void this.#start();
  }

  /** @internal */
  disconnectedCallback(): void {
    this.#stop();
  }

  /** @internal */
  attributeChangedCallback(_name: string, before: string | null, now: string | null): void {
    if (this.isConnected && before !== now) void this.#start();
  }

  #stop(): void {
    this.#starts += 1;
    this.#end();
    this.#end = () => {};
    // Removed at once: the next user must not see it, and the next chat may take a while.
    this.shadowRoot?.replaceChildren();
  }

  async #start(): Promise<void> {
    this.#stop();
    const own = this.#starts;
    // Attributes that change together cause one start.
    await undefined;
    if (own !== this.#starts) return;
    const base = (this.getAttribute('base-url') ?? relay).replace(/\/+$/, '');
    try {
      const settings = await settingsOf(base);
      if (own === this.#starts) this.#show(base, settings);
    } catch (error) {
      if (own === this.#starts) this.#fail(error);
    }
  }

  #show(base: string, settings: ChatSettings, draft?: Draft): void {
    const language = languageOf(this.#lang(), settings.words);
    const { bots = [] } = settings;
    const named = this.getAttribute('bot');
    const id = this.getAttribute('channel');
    // A page that names a bot or a conversation leaves no choice.
    const choice = named === null && !id ? bots : [];
    const chosen = choice.find((one) => one === this.#bot) ?? lastBot({ baseUrl: base }, choice);
    const bot = named ?? chosen ?? bots[0] ?? '';
    if (!/^[^/]+\/[^/]+$/.test(bot)) throw new Error(language.words.noName);
    const client = clientOf(base, bot);
    const chats = id ? undefined : chatsOf(client);
    const channel = chats?.channel ?? createChannel(client, { id: `${id}`, whileBusy: 'queue' });
    const onBot = (next: string) => {
      this.#bot = next;
      const written = view.draft();
      this.#stop();
      this.#show(base, settings, written);
      this.shadowRoot?.querySelector('select')?.focus();
    };
    const view = chatView({
      ...{ language, client, channel, chats, mode: settings.signIn, user: settings.user },
      ...{ bot, bots: choice, draft, onBot },
      botName: settings.title ?? bot,
      suggestions: settings.suggestions ?? [],
      hasFiles: settings.operations.includes('files'),
      hasChat: settings.operations.includes('chat'),
    });
    this.shadowRoot?.replaceChildren(view.element);
    const endView = view.begin();
    const endWatch = watchChannel(channel, (name, detail) => this.#say(name, detail));
    const endForget = afterSignOut(client, view.forget);
    this.#end = () => {
      endForget();
      endWatch();
      endView();
    };
  }

  #lang(): string {
    return this.getAttribute('lang') ?? document.documentElement.lang;
  }

  #fail(error: unknown): void {
    const language = languageOf(this.#lang());
    const { words, lang, dir } = language;
    const why = newElement('p', { class: 'why', part: 'error' });
    showError(why, language, error as Error);
    const shown = newElement(
      'div',
      { class: 'trouble', lang, dir },
      why,
      button(words.tryAgain, 'try-again', () => void this.#start()),
    );
    this.shadowRoot?.replaceChildren(shown);
    this.#say('bot-error', error);
  }

  #say(name: string, detail: unknown): void {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}

/** Defines `<bot-chat>`. `base` is the relay of elements without `base-url`; empty: the one of the page's own origin. */
export function defineBotChat(base: string): void {
  relay = base;
  // A server has no elements. A page can load the file twice.
  if (typeof customElements === 'undefined' || customElements.get(NAME)) return;
  customElements.define(NAME, BotChatElement);
}

declare global {
  interface HTMLElementTagNameMap {
    'bot-chat': BotChatElement;
  }
}

/**
 * Calls `act` when the user has signed out, here or in another tab, and not when the session has ended by itself. The
 * returned function ends that.
 */
function afterSignOut(client: BotClient, act: () => void): () => void {
  const { onDrop, getSnapshot } = followedSession(client);
  return onDrop(() =>
    // In a microtask, since only then it is known whether another user has signed in.
    queueMicrotask(() => {
      if (!getSnapshot().session) act();
    }),
  );
}

/** The settings of the relay for its chats. */
interface ChatSettings {
  readonly signIn: SignInMode;
  /** The groups of operations that the relay has enabled. */
  readonly operations: readonly string[];
  /** Bots to talk with, each `namespace/name`: the user chooses if the element names none. */
  readonly bots?: readonly string[];
  /** Only in the demo. */
  readonly user?: DemoUser;
  readonly title?: string;
  readonly suggestions?: readonly string[];
  /** Words in place of the element's own. */
  readonly words?: Partial<Words>;
}

/** Asks the relay at `base` how its users sign in, and what it offers. @throws RelayError */
function settingsOf(base: string): Promise<ChatSettings> {
  return answerOf<ChatSettings>(caller({ baseUrl: base })('/client/bot-chat.json'));
}

/** Calls `say` with the events of the element, as the channel changes. The returned function ends that. */
function watchChannel(channel: Channel, say: (name: string, detail: unknown) => void): () => void {
  let before: Partial<ChannelSnapshot> = {};
  function look(): void {
    const now = channel.getSnapshot();
    const { session: had, error: known } = before;
    before = now;
    if (had === undefined && now.session !== undefined) say('bot-ready', { session: now.session });
    if (had && now.session === null) say('bot-signed-out', undefined);
    if (now.error && now.error !== known) say('bot-error', now.error);
  }
  const end = channel.subscribe(look);
  look();
  return end;
}
