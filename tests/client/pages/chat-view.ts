/// <reference lib="dom" />
import { RelayError } from '../../../src/client/bot-client.ts';
import type {
  Channel,
  ChannelMessage,
  ChannelSnapshot,
  FilePart,
  MessagePart,
} from '../../../src/client/channel-types.ts';
import type { ChatParts } from '../../../src/client/element/chat-parts.ts';
import { chatStyle } from '../../../src/client/element/chat-style.ts';
import { chatView } from '../../../src/client/element/chat-view.ts';
import { languageOf } from '../../../src/client/element/words.ts';
import { STATES } from './chat-states.ts';

/** A chat whose channel shows what a test sets, and which notes what is asked of it. */
export type ChatWindow = typeof globalThis & {
  show(options?: { readonly lang?: string; readonly mode?: ChatParts['mode'] }): void;
  set(changes: Partial<ChannelSnapshot>): void;
  /** Shows a new chat in one of the states. */
  enter(state: string): void;
  /** A message of the bot; parts of it can be given. */
  answer(
    changes?: Partial<ChannelMessage> & { readonly text?: string; readonly failed?: object },
  ): ChannelMessage;
  question(text: string, changes?: Partial<ChannelMessage>): ChannelMessage;
  finishUpload(part: FilePart | undefined): void;
  readonly calls: unknown[][];
};

const SESSION = { user: { id: 'ada', name: 'Ada' }, idleExpiresAt: '', absoluteExpiresAt: '' };
const START: ChannelSnapshot = {
  ...{ status: 'ready', messages: [], error: undefined, session: SESSION, isLoading: false },
};
const calls: unknown[][] = [];
const note =
  <T>(name: string, answer: T) =>
  (...args: unknown[]) => {
    calls.push([name, ...args]);
    return Promise.resolve(answer);
  };
let snapshot = START;
const listeners = new Set<() => void>();
let finish: (part: FilePart | undefined) => void = () => {};

const channel: Channel = {
  id: 'c',
  subscribe(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  getSnapshot: () => snapshot,
  getServerSnapshot: () => snapshot,
  send: note('send', undefined),
  stop: note('stop', undefined),
  retry: note('retry', undefined),
  consent: note('consent', undefined),
  feedback: note('feedback', true),
  reset: note('reset', true),
  upload: (file, { onProgress, signal } = {}) => {
    calls.push(['upload', file.name, file.size]);
    onProgress?.(0.5);
    signal?.addEventListener('abort', () => calls.push(['aborted', file.name]));
    return new Promise((resolve) => {
      finish = resolve;
    });
  },
  downloadUrl: (path) => `/download?${path}`,
};
const client: ChatParts['client'] = {
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
  calls,
  show({ lang = 'en', mode = 'password' } = {}) {
    end();
    snapshot = START;
    calls.length = 0;
    const host = document.createElement('div');
    host.id = 'chat';
    const root = host.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [chatStyle()];
    document.querySelector('#chat')?.remove();
    document.querySelector('main')?.append(host);
    const view = chatView({
      ...{
        language: languageOf(lang),
        client,
        channel,
        mode,
        isOtherOrigin: false,
        hasFiles: true,
        hasChat: true,
      },
      botName: 'Helper',
      suggestions: ['What can you do?', 'Where is my parcel?', 'Talk with a person'],
    });
    root.append(view.element);
    end = view.begin();
  },
  set(changes) {
    snapshot = { ...snapshot, ...changes };
    for (const listener of listeners) listener();
  },
  enter(state) {
    const window = globalThis as ChatWindow;
    window.show();
    STATES[state]?.(window);
  },
  answer({ text: said = '', failed, ...changes } = {}) {
    const error =
      failed && new RelayError('The bot service cannot be reached.', { code: 'x', status: 502, ...failed });
    return message('assistant', text(said), { ...(error && { error, state: 'error' }), ...changes });
  },
  question: (said, changes = {}) => message('user', text(said), changes),
  finishUpload: (part) => finish(part),
} satisfies Partial<ChatWindow>);
