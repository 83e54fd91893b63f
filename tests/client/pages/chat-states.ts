import type { ChatWindow } from './chat-view.ts';

const MARKDOWN =
  '## Parcels\n\nYour parcel is **on its way**. See [its page](https://parcel.example/1), or run `track 1`:\n\n```sh\ntrack --parcel 1 --format a-very-long-option-that-does-not-fit-into-the-width-of-a-small-window\n```\n\n| day | place |\n|---|---|\n| Monday | Hamburg |\n| Tuesday | Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft |\n\n1. Wait\n2. Be glad\n   - very\n\n> It arrives tomorrow.';

/** Each state of the chat, as a function that brings the page into it. */
export const STATES: Readonly<Record<string, (window: ChatWindow) => void>> = {
  loading: ({ set }) => set({ session: undefined, isLoading: true }),
  'sign-in': ({ set }) => set({ session: null }),
  'sign-in-oidc': ({ show, set }) => {
    show({ mode: 'oidc' });
    set({ session: null });
  },
  empty: () => {},
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
  'signed-out': ({ set, question, answer }) => {
    set({ messages: [question('Hello'), answer({ text: 'Hello, Ada.' })] });
    set({ session: null });
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
