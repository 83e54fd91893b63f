/// <reference lib="dom" />

import type {
  Channel,
  ChannelMessage,
  ChannelSnapshot,
  FilePart,
  MessagePart,
} from '../../../src/client/channel/channel-types.ts';
import type { Looks } from '../../../src/client/element/avatar.ts';
import type { ChatDependencies } from '../../../src/client/element/chat-dependencies.ts';
import { chatView } from '../../../src/client/element/chat-view.ts';
import type { Chat } from '../../../src/client/element/kept-chats.ts';
import { chatStyle } from '../../../src/client/element/style/chat-style.ts';
import { ARABIC } from '../../../src/client/element/words/arabic.ts';
import { IN_ENGLISH, type Language, type Words } from '../../../src/client/element/words/words.ts';
import { RelayError } from '../../../src/client/session/bot-client.ts';
import { STATES } from './chat-states.ts';
import { layoutFaults } from './layout-faults.ts';

/** A chat whose channel shows what a test sets, and which notes what is asked of it. */
export type ChatWindow = typeof globalThis & {
  /** With `chats`, they are in the list of this browser; without, the page has named a conversation. */
  show(options?: {
    readonly lang?: string;
    readonly mode?: ChatDependencies['mode'];
    readonly chats?: readonly Chat[];
    readonly bots?: readonly string[];
    readonly user?: ChatDependencies['user'];
    /** What calls answer in place of what they usually do. */
    readonly calls?: Partial<ChatDependencies['client']>;
    readonly words?: Partial<Words>;
    readonly looks?: Partial<Looks>;
    readonly session?: undefined;
  }): void;
  set(changes: Partial<ChannelSnapshot>): void;
  /** Signs a user in, or out, elsewhere. */
  setUser(id: string | null): void;
  /** Shows a new chat in one of the states. */
  enter(state: string): void | Promise<void>;
  /** A message of the bot; parts of it can be given. */
  answer(
    changes?: Partial<ChannelMessage> & { readonly text?: string; readonly failed?: object },
  ): ChannelMessage;
  question(text: string, changes?: Partial<ChannelMessage>): ChannelMessage;
  /** Ends the upload of a file; without a part, it has failed, and if `isTold`, the page is told why. */
  finishUpload(part: FilePart | undefined, isTold?: boolean): void;
  /** What `send` resolves with. */
  answerSends(answer: ChannelMessage | undefined): void;
  /** Has all calls of the session, and all verdicts, fail. */
  refuse(failed: Partial<RelayError>): void;
  readonly calls: unknown[][];
  /** What is wrong with the places of what is shown. */
  layoutFaults(): string[];
  /** Resolves when all has been laid out and scrolled, and scripts have been told. */
  twoFrames(): Promise<unknown>;
};

/** As the element knows it before it shows a chat. */
function languageIn(name: string, own: Partial<Words> = {}): Language {
  const { words, ...language } =
    name === 'ar' ? ({ lang: 'ar', dir: 'rtl', words: ARABIC } as const) : IN_ENGLISH;
  return { ...language, words: { ...words, ...own } };
}

const sessionOf = (id: string, name: string) => ({
  ...{ user: { id, name }, idleExpiresAt: '', absoluteExpiresAt: '' },
});
const SESSION = sessionOf('ada', 'Ada');
const START: ChannelSnapshot = {
  ...{ status: 'ready', messages: [], error: undefined, session: SESSION, isLoading: false },
};
const calls: unknown[][] = [];
let refusal: RelayError | undefined;
let sent: ChannelMessage | undefined;
const errorOf = (failed: object) =>
  new RelayError('The bot service cannot be reached.', { code: 'x', status: 502, ...failed });
const note =
  <T>(name: string, answer: T) =>
  (...args: unknown[]) => {
    calls.push([name, ...args]);
    return refusal && /^sign/.test(name) ? Promise.reject(refusal) : Promise.resolve(answer);
  };
let snapshot = START;
const listeners = new Set<() => void>();
let finish: (part: FilePart | undefined, isTold?: boolean) => void = () => {};

const channel: Channel = {
  id: 'c',
  subscribe(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  getSnapshot: () => snapshot,
  getServerSnapshot: () => snapshot,
  send(...args) {
    calls.push(['send', ...args]);
    return Promise.resolve(sent);
  },
  stop: note('stop', undefined),
  regenerate: note('regenerate', undefined),
  consent: note('consent', undefined),
  feedback: async (...args) => {
    calls.push(['feedback', ...args]);
    return refusal === undefined;
  },
  reset: note('reset', true),
  upload: (file, { onProgress, onError, signal } = {}) => {
    calls.push(['upload', file.name, file.size]);
    onProgress?.(0.5);
    signal?.addEventListener('abort', () => calls.push(['aborted', file.name]));
    return new Promise((resolve) => {
      finish = (part, isTold = true) => {
        if (!part && isTold)
          onError?.(new RelayError('It is over 1000 bytes.', { code: 'body_too_large', status: 413 }));
        resolve(part);
      };
    });
  },
  downloadUrl: (path) => `/download?${path}`,
};
const client: ChatDependencies['client'] = {
  session: note('session', SESSION),
  signIn: note('signIn', SESSION),
  signInAsGuest: note('signInAsGuest', SESSION),
  signInUrl: (path) => `/auth/login?returnTo=${encodeURIComponent(path)}`,
  signOut: note('signOut', { logoutUrl: null }),
};

let end = () => {};
let ids = 0;
const message = (role: ChannelMessage['role'], parts: MessagePart[], changes: Partial<ChannelMessage>) => {
  ids += 1;
  return {
    id: `m${ids}`,
    role,
    parts,
    state: 'done',
    metadata: { createdAt: Date.now() },
    ...changes,
  } as const;
};
const text = (text: string): MessagePart[] => [{ type: 'text', text }];

Object.assign(globalThis, {
  ...{ calls, layoutFaults },
  twoFrames: () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
  show({ lang = 'en', mode = 'password', chats, bots = [], user, ...its } = {}) {
    const { calls: answers, words, looks, ...first } = its;
    end();
    snapshot = { ...START, ...first };
    refusal = sent = undefined;
    calls.length = 0;
    const host = document.createElement('div');
    host.id = 'chat';
    const root = host.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [chatStyle()];
    document.querySelector('#chat')?.remove();
    document.querySelector('main')?.append(host);
    const view = chatView({
      ...{
        language: languageIn(lang, words),
        client: { ...client, ...answers },
        channel,
        mode,
        user,
        bots,
        bot: bots[0] ?? 'acme/helper',
        onBot: note('onBot', undefined),
        chats: chats && {
          channel,
          all: () => chats,
          open: note('open', undefined),
          begin: note('begin', undefined),
          note: () => {},
          keep: () => {},
          rename: note('rename', undefined),
          forget: note('forget', true),
          subscribe: () => () => {},
        },
        hasFiles: true,
        hasChat: true,
      },
      looks: {
        title: bots[0]?.replace(/.*\//, '') ?? 'Helper',
        suggestions: ['What can you do?', 'Where is my parcel?', 'Talk with a person'],
        ...looks,
      },
    });
    root.append(view.element);
    end = view.begin();
  },
  set(changes) {
    snapshot = { ...snapshot, ...changes };
    for (const listener of listeners) listener();
  },
  setUser: (id) => (globalThis as ChatWindow).set({ session: id === null ? null : sessionOf(id, id) }),
  enter(state) {
    const window = globalThis as ChatWindow;
    window.show();
    return STATES[state]?.(window);
  },
  answer({ text: said = '', failed, ...changes } = {}) {
    const error = failed && errorOf(failed);
    return message('assistant', text(said), { ...(error && { error, state: 'error' }), ...changes });
  },
  question: (said, changes = {}) => message('user', text(said), changes),
  finishUpload: (part, isTold) => finish(part, isTold),
  answerSends(answer) {
    sent = answer;
  },
  refuse(failed) {
    refusal = errorOf(failed);
  },
} satisfies Partial<ChatWindow>);
