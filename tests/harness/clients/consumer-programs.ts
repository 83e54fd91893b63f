/** A program that uses everything of `bot-relay-client`, and makes mistakes that the compiler must see. */
export const PROGRAM = `
import {
  type BotClient, type BotEvent, type Channel, type ChannelSnapshot, createBotClient, createChannel, type Facts,
  type Guards, type MessagePart, textOf, type Verdict, type KnownEvent, type MessageState, type UnknownEvent,
  type IdStorage, type MessageStream, RelayError, type SendOptions, type Session,
} from 'bot-relay-client';
import { botChatTransport, type BotChatTransport } from 'bot-relay-client/ai-sdk';

const client: BotClient = createBotClient({ baseUrl: '/chat-api', namespace: 'acme', botProviderName: 'helper' });
createBotClient({ bot: 'a/b', expert: { silenceMs: 30_000, fetch: globalThis.fetch, cookies: 'keep' } });
createBotClient({ baseUrl: 'https://chat.example.com', bot: 'a/b', apiKey: 'key' });
// @ts-expect-error: a bot is named in one of two ways
createBotClient({ bot: 'a/b', namespace: 'a', botProviderName: 'b' });
// @ts-expect-error: few pages need it
createBotClient({ bot: 'a/b', silenceMs: 30_000 });
// @ts-expect-error: a client has a bot
createBotClient({});
// @ts-expect-error: the key is a text
createBotClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', apiKey: 1 });
// @ts-expect-error: the bot has a name
createBotClient({ baseUrl: '', namespace: 'a' });

client.addEventListener('signed-out', () => {});
export const transport: BotChatTransport = botChatTransport(client, { regenerate: 'reject' });

/** Narrows an event. */
function said(event: BotEvent): string | undefined {
  if (!event.known) return (event satisfies UnknownEvent).eventType;
  // @ts-expect-error: there is no such kind
  if (event.eventType === 'asgard.message.done') return '';
  void (event satisfies KnownEvent);
  switch (event.eventType) {
    case 'asgard.message.start': {
      const { message } = event.fact.messageStart;
      // @ts-expect-error: a message that begins has no text
      return message.messageId ?? message.text;
    }
    case 'asgard.message.delta':
      return event.fact.messageDelta.message.text;
    case 'asgard.message.user':
      // @ts-expect-error: it may have files only
      return event.fact.messageUser.text satisfies string;
    case 'asgard.tool_call.consent': {
      const calls: Facts['asgard.tool_call.consent']['toolCallConsent']['pendingCalls'] = event.fact.toolCallConsent.pendingCalls;
      return calls[0]?.toolCallId;
    }
    case 'asgard.run.error':
      // @ts-expect-error: it has the fact of its own kind
      return event.fact.messageDelta;
    case 'acme.graph': {
      const points: readonly number[] = event.fact.points;
      return points.join();
    }
    default:
      return undefined;
  }
}

declare module 'bot-relay-client' {
  interface Facts {
    'acme.graph': { readonly points: readonly number[] };
  }
}

const isGraph = (fact: unknown): fact is Facts['acme.graph'] => Array.isArray((fact as Partial<Facts['acme.graph']>)?.points);
const guards: Guards = { 'acme.graph': isGraph };
createBotClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', guards });
// @ts-expect-error: a guard says what the fact is
createBotClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', guards: { 'acme.graph': () => true } });
// @ts-expect-error: it is no kind of event that Facts has
createBotClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', guards: { 'acme.other': isGraph } });

export async function talk(): Promise<string> {
  const session: Session = await client.signIn('ada', 'secret');
  const same: Session | null = await client.session();
  const guest: Session = await client.signInAsGuest();
  const states: MessageState[] = [];
  const stop = new AbortController();
  const stream: MessageStream = client.send('Hello', { signal: stop.signal, onState: (state) => states.push(state) });
  const requestId: string | undefined = stream.requestId;
  try {
    for await (const event of stream) {
      const kind: string = event.eventType;
      const [id, runId]: readonly (string | undefined)[] = [event.id, event.runId];
      // @ts-expect-error: what the data are is the bot's business
      const text: string = event.raw;
      // @ts-expect-error: it may be an event of another kind, or of another shape
      const fact: Facts[keyof Facts] = event.fact;
      // @ts-expect-error: the type alone says nothing of the shape
      if (event.eventType === 'asgard.message.delta') states.push(event.fact.messageDelta);
      states.push(stream.state);
      const { known, eventType: type, fact: content } = event;
      if (known && type === 'asgard.message.user') states.push(content.messageUser.text === '' ? 'done' : 'waiting');
      void [kind, id, runId, text, fact, said(event)];
    }
    for await (const event of client.send({ text: 'Hello', customChannelId: 'c' })) void (event satisfies BotEvent);
  } catch (error) {
    if (!(error instanceof RelayError)) throw error;
    const known: { message: string; code: string; status: number } = error;
    const retryAfter: number | undefined = error.retryAfter;
    const retryable: false | 'new message' | 'same message' | undefined = error.retryable;
    const maybeStarted: boolean | undefined = error.maybeStarted;
    const upstream: unknown = error.upstream;
    // @ts-expect-error: what the bot service answers is its own business
    const ofUpstream: string = error.upstream;
    if (error.code === 'connection_lost' || error.code === 'rate_limited') return error.requestId ?? '';
    // @ts-expect-error: errors stay as they are
    error.code = 'x';
    void [known, retryAfter, retryable, maybeStarted, upstream, ofUpstream];
  }
  const options: SendOptions = { signal: stop.signal, onState: (state, of) => states.push(state, of.state) };
  for await (const event of client.send('Hello', options)) void (event satisfies BotEvent);
  const pieces: string[] = [];
  for await (const text of client.send('Hello').text) pieces.push(text);
  for await (const text of client.send({ text: 'Hello', payload: { page: 1 } }).text) pieces.push(text);
  // @ts-expect-error: a message has no such member
  client.send({ txt: 'Hello' });
  const ids: IdStorage = { getItem: () => null, setItem() {}, removeItem() {} };
  createBotClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', ids });
  createBotClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', ids: null });
  const channel: Channel = createChannel(client, { id: 'my-channel', onEvent: (event) => void (event satisfies BotEvent) });
  const { status, messages, isLoading }: ChannelSnapshot = channel.getSnapshot();
  const first: MessagePart | undefined = messages[0]?.parts[0];
  if (first?.type === 'dynamic-tool' && first.state === 'approval-requested') await channel.consent(first.toolCallId, true);
  // @ts-expect-error: a tool call has no text
  if (first?.type === 'dynamic-tool') void first.text;
  // @ts-expect-error: there are two verdicts
  await channel.feedback('id', 'FINE');
  void [status satisfies string, isLoading, messages.map(textOf), await channel.feedback('id', 'BAD' satisfies Verdict)];
  const { logoutUrl }: { readonly logoutUrl: string | null } = await client.signOut();
  return [session.user.id, same?.user.name, guest.idleExpiresAt, requestId, logoutUrl].join(client.signInUrl('/'));
}
`;

/** A component that uses everything of `bot-relay-client/react`. */
export const COMPONENT = `
import {
  type Bot, BotProvider, type BotProviderProps, type Channel, type ChannelMessage, type ChannelOptions,
  BotChat, createBotClient, createChannel, type MessageStorage,
  type FilePart, RelayError, textOf, useBot, useBotClient, type UseBotOptions, useSession,
} from 'bot-relay-client/react';
import type { BotChatElement } from 'bot-relay-client/element';
import { useRef } from 'react';

const plain = { baseUrl: '', namespace: 'ns', botProviderName: 'bot' };
export const options: ChannelOptions = { id: 'my-channel', whileBusy: 'queue', expert: { gcMs: 1000 } };
export const given: BotProviderProps = { client: createBotClient(plain) };
function Row({ message }: { message: ChannelMessage }) {
  const { id, role, state, error, metadata } = message;
  return <li id={id} className={role} data-state={state} title={error?.message ?? metadata.requestId}>{textOf(message)}</li>;
}
export function Chat() {
  const bot: Bot = useBot({ ...options, onFinish: ({ parts }) => parts.length });
  const channel: Channel = createChannel(useBotClient(), { id: 'my-channel' });
  const others: UseBotOptions = { channel };
  const same: Bot = useBot(others);
  const { messages, status, error, send, stop, upload, regenerate, consent, feedback, reset } = bot;
  const { session, signIn, signInAsGuest, signInUrl, signOut } = useSession();
  const sent: Promise<ChannelMessage | undefined> = send('Hello');
  const withFile = async (file: File) => {
    const part: FilePart | undefined = await upload(file, { onProgress: (n) => n.toFixed() });
    if (part !== undefined) await send({ text: 'See', files: [part], payload: {} });
  };
  void [withFile, same.id, regenerate(), consent('id', 'always'), feedback('id', 'GOOD'), reset()];
  const leave = async () => {
    const { logoutUrl } = await signOut();
    if (logoutUrl) location.assign(logoutUrl);
  };
  if (session === null) return <a href={signInUrl('/chat')} onClick={() => signIn('a', 'b').then(signInAsGuest)}>In</a>;
  return (
    <form onSubmit={() => void sent}>
      {session?.user.name} {status === 'reconnecting'} {error instanceof RelayError && error.retryAfter}
      <button onClick={stop}>Stop</button><button onClick={leave}>Out</button>
      <ul>{messages.map((message) => <Row key={message.id} message={message} />)}</ul>
    </form>
  );
}
export const kept: MessageStorage = { load: async () => [], save: async () => {}, clear: async () => {} };
export function Elements() {
  const whole = useRef<BotChatElement>(null);
  return (
    <>
      <bot-chat
        ref={whole} base-url="/chat-api" bot="demo/echo" channel="one" lang="ar" heading="Help" placeholder="Ask"
        suggestions="One" theme="dark" logo="/logo.svg" class="chat" id="chat" style={{ height: 400 }}
      />
      <BotChat
        ref={whole} baseUrl="/chat-api" bot="demo/echo" channel="one" lang="ar" heading="Help" placeholder="Ask"
        suggestions={['One', 'Two']} theme="light" logo="/logo.svg" className="chat" style={{ height: 400 }}
        onReady={(session) => session?.user.name} onError={(error) => error.message} onSignedOut={() => whole.current?.remove()}
      />
    </>
  );
}
export const App = () => <BotProvider {...plain}><BotProvider bot="ns/bot"><BotProvider {...given}><Chat /></BotProvider></BotProvider></BotProvider>;
`;

/** A chat of the AI SDK over the transport, and one with the messages of a channel. */
export const AI_SDK_CHAT = `
import { Chat } from '@ai-sdk/react';
import type { ChatTransport, UIMessage } from 'ai';
import { type ChannelMessage, createBotClient, createChannel } from 'bot-relay-client';
import { botChatTransport, type BotChatTransport, type BotChatTransportOptions, loadMessages, RelayError } from 'bot-relay-client/ai-sdk';

const client = createBotClient({ baseUrl: '', namespace: 'ns', botProviderName: 'bot' });
const options: BotChatTransportOptions = { regenerate: 'new-run', onStopError: (error) => void error.requestId };
const transport: BotChatTransport = botChatTransport(client, options);
type Own = UIMessage<{ requestId?: string }, { 'acme.chart': { points: number[] } }>;
const same: ChatTransport<UIMessage> & ChatTransport<Own> = transport;
export const chat = new Chat<Own>({ id: 'my-chat', transport: same });
void (chat.error instanceof RelayError && chat.error.code);
// @ts-expect-error: there are two ways
botChatTransport(client, { regenerate: true });
// @ts-expect-error: a transport needs a client
botChatTransport({ baseUrl: '' });

export const ofChannel = (messages: readonly ChannelMessage[]): UIMessage[] => [...messages];
export const before = async (): Promise<UIMessage[]> => loadMessages(client, 'my-chat');
const { messages } = createChannel(client).getSnapshot();
export const continued = new Chat({ messages: [...messages], transport });
`;

/** Each line is one mistake. */
export const MISTAKES = [
  "BotProvider({ baseUrl: '', namespace: 'ns' })",
  "BotProvider({ baseUrl: '', namespace: 'ns', botProviderName: 'bot', apiKey: 'key' })",
  'useBot(options).send(5)',
  "useBot(options).send({ txt: 'Hello' })",
  "useBot({ id: 'one', gcMs: 5 })",
  "BotProvider({ bot: 'a/b', namespace: 'a', botProviderName: 'b' })",
  'BotChat({ bot: 5 })',
  "createElement(BotChat, { theme: 'blue' })",
  '<bot-chat theme="blue" />',
  '<bot-chat colour="blue" />',
  "useBot(options).upload('file')",
  "useBot(options).status === 'done'",
  'useSession().session.user',
  "useBot(options).messages.push({ id: '1', role: 'user', parts: [], state: 'done', metadata: {} })",
  "useBot({ id: 'one', whileBusy: 'wait' })",
  "useBot(options).consent('id', 'never')",
];
