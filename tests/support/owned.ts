import type { Socket } from 'node:net';
import { type Answer, call } from './call.ts';
import { type RawRequest, type RawUpstream, startRawUpstream, wholeStream } from './raw-upstream.ts';
import { plainAnswer } from './relay-and-upstream.ts';
import { jsonAnswer } from './suspend.ts';

/** Answers a request itself, or returns false. */
type Answering = (socket: Socket, request: RawRequest) => boolean | undefined;

/** A bot service that has the conversations with whom somebody has talked, each by its bot and exact id. */
export interface ChannelService extends Pick<RawUpstream, 'url' | 'requests' | 'close'> {
  /** `namespace/bot id` of each conversation. */
  readonly channels: Set<string>;
  /** The method and the path below the bot of every request, in order. */
  asked(): string[];
  /** Takes requests before the service does. */
  answering: Answering;
}

const LINE = /^(\S+) (?:\/\S+?)?\/ns\/([^/]+)\/bot-provider\/([^/]+)\/([^ ?]+)/;

function partsOf({ requestLine, body }: RawRequest) {
  const [, method = '', namespace = '', bot = '', path = ''] = LINE.exec(requestLine) ?? [];
  const url = new URL(requestLine.split(' ')[1] ?? '', 'http://service');
  const inQuery = url.searchParams.get('custom_channel_id');
  const id = inQuery ?? (JSON.parse(String(body)) as { customChannelId?: string }).customChannelId;
  return { operation: `${method} ${path}`, channel: `${namespace}/${bot} ${id}` };
}

/** What the service answers to a question about a conversation that it does not have. */
export const NO_SUCH_CHANNEL = jsonAnswer('404 Not Found', { message: 'no such channel' });

export async function startChannelService(): Promise<ChannelService> {
  const channels = new Set<string>();
  const upstream = await startRawUpstream((socket, request) => {
    if (service.answering(socket, request)) return;
    const { operation, channel } = partsOf(request);
    if (operation === 'POST message/sse') channels.add(channel);
    if (!channels.has(channel)) return void socket.write(NO_SUCH_CHANNEL);
    const isStream = operation.endsWith('message/sse');
    const stream = wholeStream(`data: ${JSON.stringify({ channel })}\n\n`);
    socket.write(isStream ? stream : jsonAnswer('200 OK', { channel }));
  });
  const service: ChannelService = {
    ...{ url: upstream.url, requests: upstream.requests, close: upstream.close, channels },
    asked: () => upstream.requests.map((request) => partsOf(request).operation),
    answering: () => false,
  };
  return service;
}

/** Answers the question about a conversation with `answer`, as often as it is asked. */
export const toTheQuestion =
  (answer: (socket: Socket, request: RawRequest) => void): Answering =>
  (socket, request) => {
    if (!request.requestLine.includes('/channel/metadata?')) return false;
    answer(socket, request);
    return true;
  };

/** Where and how a request is sent. */
export interface Sent {
  readonly port: number;
  readonly cookie: string;
  readonly bot?: string;
  readonly prefix?: string;
  readonly headers?: Record<string, string>;
}

const pathOf = ({ prefix = '', bot = 'helper' }: Sent) => `${prefix}/ns/acme/bot-provider/${bot}`;

/** Sends a message to the conversation `id`. */
export function say(sent: Sent, id: string, body = JSON.stringify({ customChannelId: id, text: 'hi' })) {
  const headers = { Cookie: sent.cookie, 'Content-Type': 'application/json', ...sent.headers };
  return call(sent.port, `${pathOf(sent)}/message/sse`, { method: 'POST', headers, body });
}

/** Sends an operation that names its conversation in the query, such as `GET channel/metadata`. */
export function operate(sent: Sent, line: string, id: string): Promise<Answer> {
  const [method = '', path = ''] = line.split(' ');
  const query = new URLSearchParams({ custom_channel_id: id });
  return call(sent.port, `${pathOf(sent)}/${path}?${query}`, { method, headers: { Cookie: sent.cookie } });
}

/** Sends feedback about a message of the conversation `id`. */
export function giveFeedback(sent: Sent, id: string): Promise<Answer> {
  const headers = { Cookie: sent.cookie, 'Content-Type': 'application/json' };
  const body = JSON.stringify({ customChannelId: id, messageId: 'm', verdict: 'GOOD', comment: '' });
  return call(sent.port, `${pathOf(sent)}/message/feedback`, { method: 'POST', headers, body });
}

/** An answer without JSON, as a proxy on the way writes it. */
export const htmlAnswer = (statusLine: string) =>
  plainAnswer(statusLine, ['Content-Type: text/html'], '<h1>Hello</h1>');
