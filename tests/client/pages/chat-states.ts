/// <reference lib="dom" />

import type { FilePart } from '../../../src/client/channel/channel-types.ts';
import { defineBotChat } from '../../../src/client/element/bot-chat-element.ts';
import type { RelayError } from '../../../src/client/session/bot-client.ts';
import type { ChatWindow } from './chat-view.ts';

/** A picture of the page's own origin, as far as the policy of the page is concerned. */
const LOGO = URL.createObjectURL(
  new Blob(
    [
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><path fill="#2459a9" d="M0 0h1v1H0z"/></svg>',
    ],
    {
      type: 'image/svg+xml',
    },
  ),
);

const CHATS = [
  { id: 'c', title: 'Where is my parcel?', at: Date.now() },
  { id: 'd', title: '', at: 1_700_000_000_000 },
  {
    id: 'e',
    title: 'Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft',
    at: 1_690_000_000_000,
  },
  { id: 'f', title: 'أين طردي؟', at: 1_700_000_000_000 },
];
const inChat = <T extends Element>(selector: string) =>
  document.querySelector('#chat')?.shadowRoot?.querySelector<T>(selector);
const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));

/** Attaches a file, whose upload then waits. */
async function attach(name: string): Promise<void> {
  const data = new DataTransfer();
  data.items.add(new File(['text'], name));
  inChat('.chat')?.dispatchEvent(new DragEvent('drop', { dataTransfer: data, cancelable: true }));
  await frame();
}

const PICTURE: FilePart = {
  ...{ type: 'file', mediaType: 'image/png', filename: 'cat.png', url: '/cat.png', blobId: 'cat' },
};

/** Attaches a picture, whose upload then waits. */
async function attachPicture(name: string): Promise<void> {
  const canvas = new OffscreenCanvas(320, 200);
  const context = canvas.getContext('2d');
  if (context) Object.assign(context, { fillStyle: 'teal' }).fillRect(0, 0, 320, 200);
  const data = new DataTransfer();
  data.items.add(new File([await canvas.convertToBlob()], name, { type: 'image/png' }));
  inChat('.chat')?.dispatchEvent(new DragEvent('drop', { dataTransfer: data, cancelable: true }));
  await frame();
}

/** A refused call, as the relay would refuse it. */
const refused = ({ answer }: ChatWindow, text: string) =>
  Object.assign(answer({ failed: {} }).error as RelayError, { message: text });

/** Signs in with what is filled in; nobody is signed in before. */
async function submitSignIn(set: ChatWindow['set']): Promise<void> {
  set({ session: null });
  inChat<HTMLFormElement>('form.sign-in')?.requestSubmit();
  await frame();
}

const ADA = { name: 'ada', password: 'wrong' };
const SETTINGS = { signIn: 'password', operations: ['message', 'chat'], bots: ['demo/echo'] };
const SESSION = { user: { id: 'ada', name: 'Ada' }, idleExpiresAt: '', absoluteExpiresAt: '' };

/**
 * Shows the element itself at a relay that answers each path that ends so with these JSON data, and 502 to all others. It
 * stays: what the element asks later is answered, too.
 */
async function showElement(answers: Readonly<Record<string, unknown>>): Promise<void> {
  defineBotChat('');
  globalThis.fetch = async (input) => {
    const { pathname } = new URL(input instanceof Request ? input.url : input, location.href);
    const [, data] = Object.entries(answers).find(([end]) => pathname.endsWith(end)) ?? [];
    return data ? Response.json(data) : new Response('', { status: 502 });
  };
  const chat = document.createElement('bot-chat');
  chat.id = 'chat';
  chat.setAttribute('channel', 'one');
  document.querySelector('#chat')?.replaceWith(chat);
  // The element asks several times, with pauses.
  for (let left = 600; left > 0 && !inChat('[part~=try-again]:not([hidden])'); left -= 1) await frame();
  if (!inChat('[part~=try-again]:not([hidden])')) throw new Error('nothing can be tried again');
}
/** Opens the list as a sheet, where it does not stand beside the conversation. */
function openList(): void {
  const show = inChat<HTMLElement>('.show-chats');
  if (show?.checkVisibility()) show.click();
}

const MARKDOWN =
  '## Parcels\n\nYour parcel is **on its way**. See [its page](https://parcel.example/1), or run `track 1`:\n\n```sh\ntrack --parcel 1 --format a-very-long-option-that-does-not-fit-into-the-width-of-a-small-window\n```\n\n| day | place |\n|---|---|\n| Monday | Hamburg |\n| Tuesday | Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft |\n\n1. Wait\n2. Be glad\n   - very\n\n> It arrives tomorrow.';

/** Each state of the chat, as a function that brings the page into it. */
export const STATES: Readonly<Record<string, (window: ChatWindow) => void | Promise<void>>> = {
  loading: ({ set }) => set({ session: undefined, isLoading: true }),
  'sign-in': ({ set }) => set({ session: null }),
  'sign-in-demo': ({ show, set }) => {
    show({ user: { name: 'demo', password: 'demo' }, bots: ['demo/echo', 'demo/guide'] });
    set({ session: null });
  },
  'sign-in-oidc': ({ show, set }) => {
    show({ mode: 'oidc' });
    set({ session: null });
  },
  'sign-in-guest': ({ show, set }) => {
    show({ mode: 'guest' });
    set({ session: null });
  },
  'sign-in-failed': async (window) => {
    const error = refused(window, 'The user name or the password is wrong.');
    window.show({ user: ADA, calls: { signIn: () => Promise.reject(error) } });
    await submitSignIn(window.set);
  },
  'sign-in-waiting': async (window) => {
    const error = Object.assign(refused(window, 'Too many failed sign-ins.'), { retryAfter: 600 });
    window.show({ user: ADA, calls: { signIn: () => Promise.reject(error) } });
    await submitSignIn(window.set);
  },
  fail: () => showElement({}),
  'history-failed': () => showElement({ '/client/bot-chat.json': SETTINGS, '/auth/session': SESSION }),
  empty: () => {},
  files: async (window) => {
    const { finishUpload, set } = window;
    await attach('done.txt');
    finishUpload({ type: 'file', mediaType: 'text/plain', filename: 'done.txt', url: '/a', blobId: 'b' });
    set({ error: refused(window, 'The file is larger than the relay takes.') });
    await attach('Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft.txt');
    finishUpload(undefined);
    // Narrow letters leave no room at the end of a line by chance.
    await attach(`${'l'.repeat(120)}.txt`);
  },
  dropping: () => {
    inChat('.chat')?.dispatchEvent(new DragEvent('dragover', { cancelable: true }));
  },
  'composer-error': (window) =>
    window.set({ error: refused(window, 'The conversation cannot be deleted now.') }),
  'header-error': async (window) => {
    const error = refused(window, 'The relay, or a proxy before it, cannot be reached.');
    window.show({ calls: { signOut: () => Promise.reject(error) } });
    window.set({ messages: [window.question('Hello'), window.answer({ text: 'Hello, Ada.' })] });
    inChat<HTMLElement>('[part~=sign-out]')?.click();
    await frame();
  },
  submitted: ({ set, question, answer }) =>
    set({ status: 'submitted', messages: [question('Where is my parcel?'), answer({ state: 'submitted' })] }),
  streaming: ({ set, question, answer }) =>
    set({
      status: 'streaming',
      messages: [
        question('Where is my parcel?'),
        answer({ state: 'streaming', text: MARKDOWN.slice(0, 60) }),
      ],
    }),
  reconnecting: ({ set, question, answer }) =>
    set({
      status: 'reconnecting',
      messages: [
        question('Where is it?'),
        answer({ state: 'reconnecting', text: 'It is' }),
        question('Next', { state: 'queued' }),
      ],
    }),
  done: ({ set, question, answer }) =>
    set({
      messages: [
        question('Where is my parcel?\nI wait for it.'),
        answer({
          text: MARKDOWN,
          metadata: { createdAt: 1_700_000_000_000, messageId: 'm', verdict: 'GOOD' },
        }),
      ],
    }),
  stopped: ({ set, question, answer }) =>
    set({ messages: [question('Tell me all.'), answer({ state: 'stopped', text: 'In the beginning' })] }),
  failed: ({ set, question, answer }) =>
    set({
      status: 'error',
      messages: [
        question('Hello'),
        answer({ failed: { requestId: '0a1b2c3d-request', retryAfter: 90 } }),
        question('Again'),
        answer({ text: 'Half an', failed: { requestId: '1f2e3d4c-request' } }),
      ],
    }),
  'history-and-send-failed': ({ set, answer }) => {
    const [first, last] = [answer({ failed: {} }).error, answer({ failed: {} }).error];
    if (first) set({ status: 'error', error: last, failedHistory: { error: first, loadAgain() {} } });
  },
  consent: ({ set, question, answer }) => {
    const tool = { type: 'dynamic-tool', toolName: 'clock', input: {} } as const;
    set({
      messages: [
        question('What time is it?', {
          parts: [
            { type: 'text', text: 'See this' },
            {
              type: 'file',
              mediaType: 'text/plain',
              filename: 'note.txt',
              url: '/download?note.txt',
              blobId: 'b',
            },
          ],
        }),
        answer({
          parts: [
            { ...tool, toolCallId: '1', state: 'output-available', output: 1 },
            { ...tool, toolCallId: '2', state: 'approval-requested', approval: { id: '2' } },
          ],
        }),
      ],
    });
  },
  chats: ({ show, set, question, answer }) => {
    show({ chats: CHATS, bots: ['demo/echo', 'demo/guide'] });
    set({ messages: [question('Where is my parcel?'), answer({ text: 'It is on its way.' })] });
    openList();
  },
  'chats-arabic': ({ show, set, question, answer }) => {
    show({ lang: 'ar', chats: CHATS });
    set({ messages: [question('أين طردي؟'), answer({ text: 'طردك **في الطريق**.' })] });
    openList();
  },
  'chats-empty': ({ show }) => show({ chats: [] }),
  'chat-rename': ({ show }) => {
    show({ chats: CHATS });
    openList();
    inChat<HTMLElement>('[part~=rename-chat]')?.click();
  },
  'chat-delete': ({ show }) => {
    show({ chats: CHATS });
    openList();
    inChat<HTMLElement>('[part~=delete-chat]')?.click();
  },
  account: ({ show }) => {
    show({ chats: CHATS });
    inChat<HTMLElement>('summary.account')?.click();
  },
  logo: ({ show }) =>
    show({ looks: { logo: LOGO, title: 'The helper of a shop with a rather long name', suggestions: [] } }),
  'signed-out-draft': ({ set }) => {
    const text = inChat<HTMLTextAreaElement>('textarea');
    if (text) text.value = 'Where is my parcel?';
    set({ session: null });
  },
  'signed-out': ({ set, question, answer }) => {
    set({ messages: [question('Hello'), answer({ text: 'Hello, Ada.' })] });
    set({ session: null });
  },
  'failed-arabic': ({ show, set, question, answer }) => {
    show({ lang: 'ar' });
    const failed = { code: 'unreachable', requestId: '0a1b2c3d-request' };
    const messages = [question('أين طردي؟'), answer({ text: 'طردك', failed }), answer({ failed: {} })];
    set({ status: 'error', messages, error: answer({ failed: { ...failed, code: 'x' } }).error });
  },
  tools: ({ set, question, answer }) => {
    const tool = { type: 'dynamic-tool', toolName: 'find_parcel' } as const;
    const input = { number: 'DE-2024-0815', country: 'Germany', options: { history: true } };
    set({
      status: 'streaming',
      messages: [
        question('Where is it?'),
        answer({
          text: 'It is in **Hamburg**.',
          parts: [
            { ...tool, toolCallId: '1', input, state: 'output-available', output: { place: 'Hamburg' } },
            {
              ...tool,
              toolCallId: '2',
              input: {},
              state: 'approval-responded',
              approval: { id: '2', approved: false },
            },
            { type: 'text', text: 'It is in **Hamburg**.' },
          ],
        }),
        question('And the other one?'),
        answer({
          state: 'streaming',
          parts: [{ ...tool, toolCallId: '3', input, state: 'input-available' }],
        }),
      ],
    });
    inChat<HTMLElement>('.tool summary')?.click();
  },
  'consent-long': ({ set, question, answer }) => {
    const text = 'Dear Ada, your parcel is on its way, and it arrives tomorrow. '.repeat(12);
    set({
      messages: [
        question('Tell Ada.'),
        answer({
          parts: [
            {
              ...{ type: 'dynamic-tool', toolName: 'send_email', toolCallId: '1' },
              ...{ input: { to: 'ada@example.com', subject: 'Your parcel' } },
              ...{ state: 'approval-requested', approval: { id: '1' } },
            },
            {
              ...{ type: 'dynamic-tool', toolName: 'sendEmail', toolCallId: '2', input: { text } },
              ...{ state: 'approval-requested', approval: { id: '2' } },
            },
          ],
        }),
      ],
    });
    inChat<HTMLElement>('.consent summary')?.click();
  },
  comment: ({ set, question, answer }) => {
    set({
      messages: [
        question('Hello'),
        answer({ text: 'Hello.', metadata: { messageId: 'm', verdict: 'BAD', createdAt: Date.now() } }),
      ],
    });
    inChat<HTMLElement>('.down')?.click();
  },
  'scrolled-up': async ({ set, question, answer }) => {
    set({ messages: [question('Tell me all.'), answer({ text: 'A line.\n\n'.repeat(60) })] });
    await frame();
    await frame();
    inChat('.log')?.scrollTo(0, 300);
    await frame();
  },
  picture: async (window) => {
    await attachPicture('cat.png');
    window.finishUpload(PICTURE);
    await frame();
    inChat<HTMLTextAreaElement>('textarea')?.focus();
    window.set({
      messages: [window.question('', { parts: [PICTURE, { type: 'text', text: 'What is it?' }] })],
    });
    await frame();
  },
  arabic: ({ show, set, question, answer }) => {
    show({ lang: 'ar' });
    set({
      messages: [
        question('أين طردي؟'),
        answer({ text: 'طردك **في الطريق**.\n\n```js\nlet a = 1;\n```\n\n- غدا' }),
      ],
    });
  },
};
