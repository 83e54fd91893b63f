import type { Channel } from '../channel/channel-types.ts';
import { createChannel } from '../channel/create-channel.ts';
import { lastBot } from '../channel/default-channel.ts';
import { afterSignOut, type BotChatEventMap, watchChannel } from './bot-chat-events.ts';
import type { Draft } from './chat-dependencies.ts';
import { type ChatSettings, looksOf, settingsOf } from './chat-settings.ts';
import { type ChatView, chatView } from './chat-view.ts';
import { type Chats, chatsOf, clientOf } from './chats.ts';
import { button, newElement } from './dom.ts';
import { showError } from './error-text.ts';
import { keptDrafts } from './kept-drafts.ts';
import { chatStyle } from './style/chat-style.ts';
import { type Language, languageOf } from './words/words.ts';

const NAME = 'bot-chat';
/** Attributes that only change the looks. `theme` is read by the style sheet alone. */
const LOOKS = ['heading', 'logo', 'placeholder', 'suggestions'];
/** The address of the relay for elements without `base-url`. */
let relay = '';

/** `HTMLElement`. A server that renders the page has none: there it is an empty class. */
const ElementBase: typeof HTMLElement = typeof HTMLElement === 'function' ? HTMLElement : Object(class {});

/**
 * The element `<bot-chat>`: a whole chat with one bot. Attributes: `base-url` (the relay), `bot` (`namespace/name`),
 * `channel` (the id of a conversation), `lang`; and for its looks `heading`, `logo` (the address of a picture),
 * `placeholder`, `suggestions` (one a line), `theme` (`light`, `dark`, or that of the page) and `autofocus`. It dispatches
 * `bot-ready`, `bot-error` with the error as `detail`, and `bot-signed-out`. Removing it stops no run.
 * @hideconstructor
 */
export class BotChatElement extends ElementBase {
  /** @internal */
  static readonly observedAttributes = ['base-url', 'bot', 'channel', 'lang', ...LOOKS];
  #end = () => {};
  /** The bot that the user has chosen. */
  #bot: string | undefined;
  /** The number of the last start: one before it, which still waits for the relay, must show nothing. */
  #starts = 0;
  #resolve: (shown: ShownChat) => void = () => {};
  /** What is shown, as soon as the relay has said how. */
  #shown = this.#nextShown();
  #isShown = false;
  #look = () => {};

  constructor() {
    super();
    this.attachShadow({ mode: 'open' }).adoptedStyleSheets = [chatStyle()];
  }

  /**
   * Sends a message as the user: a paid run. Resolves when its answer has ended. Before it is known who is signed in, it
   * waits; if nobody is, nothing is sent, and `bot-error` says so.
   */
  async send(text: string): Promise<void> {
    const { channel } = await this.#shown;
    await channel.send(text);
  }

  /** Begins a new chat, as its button does. With the attribute `channel`, the user is asked first. */
  async newChat(): Promise<void> {
    const { view } = await this.#shown;
    view.newChat();
  }

  /** Opens the conversation with this id. With the attribute `channel`, that attribute changes. */
  async open(id: string): Promise<void> {
    const { chats } = await this.#shown;
    if (chats) chats.open(id);
    else this.setAttribute('channel', id);
  }

  /** Moves the focus to where the user writes or signs in, as soon as that is shown. */
  override focus(): void {
    void this.#shown.then(({ view }) => view.focus());
  }

  /** Adds a listener, whose event has the type of its name. */
  override addEventListener<K extends keyof BotChatEventMap>(
    type: K,
    listener: (this: BotChatElement, event: BotChatEventMap[K]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  /** Adds a listener of any other event. */
  override addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
  override addEventListener(...its: Parameters<HTMLElement['addEventListener']>): void {
    super.addEventListener(...its);
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
  attributeChangedCallback(name: string, before: string | null, now: string | null): void {
    if (!this.isConnected || before === now) return;
    if (LOOKS.includes(name)) this.#look();
    else void this.#start();
  }

  #stop(): void {
    this.#starts += 1;
    this.#end();
    this.#end = this.#look = () => {};
    // Who waits for the first chat goes on to wait.
    if (this.#isShown) this.#shown = this.#nextShown();
    this.#isShown = false;
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
    const coming = languageOf(this.getAttribute('lang') ?? document.documentElement.lang);
    try {
      const settings = await settingsOf(base);
      const { words, ...language } = await coming;
      if (own !== this.#starts) return;
      this.#show({ base, settings, language: { ...language, words: { ...words, ...settings.words } } });
    } catch (error) {
      const language = await coming;
      if (own === this.#starts) this.#fail(error, language);
    }
  }

  #show(known: Known, draft?: Draft): void {
    const { base, settings, language } = known;
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
      this.#show(known, written);
      this.shadowRoot?.querySelector('select')?.focus();
    };
    const looks = () => looksOf(this, settings, { bot, bots: choice });
    const view = chatView({
      ...{ language, client, channel, chats, mode: settings.signIn, user: settings.user },
      ...{ bot, bots: choice, draft, drafts: keptDrafts(client), onBot, looks: looks() },
      hasFiles: settings.operations.includes('files'),
      hasChat: settings.operations.includes('chat'),
    });
    this.shadowRoot?.replaceChildren(view.element);
    this.#begin({ view, channel, chats }, afterSignOut(client, view.forget));
    this.#look = () => view.look(looks());
  }

  #begin(shown: ShownChat, endForget: () => void): void {
    const { view, channel } = shown;
    const endView = view.begin();
    const endWatch = watchChannel(channel, (name, detail) => {
      if (name === 'bot-ready') this.#focusFirst(view);
      this.#say(name, detail);
    });
    this.#end = () => {
      endForget();
      endWatch();
      endView();
    };
    this.#isShown = true;
    this.#resolve(shown);
  }

  #nextShown(): Promise<ShownChat> {
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  /** With `autofocus`, the user can write at once, unless the page has the focus elsewhere by now. */
  #focusFirst(view: ChatView): void {
    if (this.autofocus && document.activeElement === document.body) view.focus();
  }

  #fail(error: unknown, language: Language): void {
    const { words, lang, dir } = language;
    const why = newElement('p', { class: 'why', part: 'error' });
    showError(why, language, error as Error);
    const shown = newElement(
      'div',
      { class: 'trouble' },
      why,
      button(words.tryAgain, 'try-again', () => void this.#start()),
    );
    this.shadowRoot?.replaceChildren(newElement('div', { class: 'chat failed', lang, dir }, shown));
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

/** What must be known before a chat is shown. */
interface Known {
  readonly base: string;
  readonly settings: ChatSettings;
  readonly language: Language;
}

/** What the methods of the element use. */
interface ShownChat {
  readonly view: ChatView;
  readonly channel: Channel;
  readonly chats: Chats | undefined;
}

declare global {
  interface HTMLElementTagNameMap {
    'bot-chat': BotChatElement;
  }
}
