import type { Socket } from 'node:net';
import { expect } from '@jest/globals';
import type { SessionLimits } from '../../../src/authenticate/sessions/session.ts';
import { until } from '../clock/until.ts';
import { BOT_PATH, type TestRelay } from '../relay/relay.ts';
import { type RelayAndUpstream, startRelayBefore } from '../relay/relay-and-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawRequest,
  STREAM_HEAD,
  startRawUpstream,
} from '../service/raw-upstream.ts';
import { parseAnswer } from './call.ts';
import { type ErrorEvent, errorEventIn } from './error-event.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from './raw-client.ts';

/** Long enough to be remembered after its run. */
export const ID = 'message-0000000001';
const event = (eventType: string, n: number) =>
  `data: ${JSON.stringify({ eventType: `asgard.${eventType}`, requestId: 'run-1', n })}\n\n`;
export const INIT = event('run.init', 0);
export const DELTA = event('message.delta', 1);
export const KEPT = `id: 7\n${event('message.complete', 2)}`;
export const DONE = event('run.done', 3);
/** The events of a whole answer. */
export const EVENTS = [INIT, DELTA, KEPT, event('message.delta', 4), DONE] as const;
export const WHOLE = EVENTS.join('');

/** A message of a client in the field, with `changes` of its members. */
export function messageBody(changes: object = {}): string {
  return JSON.stringify({
    customChannelId: 'c1',
    customMessageId: ID,
    text: 'hi',
    action: 'NONE',
    ...changes,
  });
}

/** What clients ask of one relay. */
export interface WaysToAsk {
  /** Sends a message; `message` can set its parts, and `changes` those of its body. */
  say(changes?: object, message?: Parameters<RelayAndUpstream['ask']>[0]): RawClient;
  /** Asks for the run of a message by its id alone. */
  byName(options?: {
    readonly id?: string;
    readonly channel?: string;
    readonly cookie?: string;
    readonly headers?: readonly string[];
  }): RawClient;
  /** Closes a client's connection; resolves when the relay knows it. */
  leave(client: RawClient): Promise<void>;
}

/** The ways to ask `relay` with the session of `ownCookie`. All that they open is added to `clients`. */
export function waysToAsk(
  relay: Pick<TestRelay, 'port' | 'openMessages'>,
  ownCookie: string,
  clients: RawClient[],
): WaysToAsk {
  const ask = (text: string) => {
    const client = rawClient(relay.port, text);
    clients.push(client);
    return client;
  };
  return {
    say: (changes = {}, { headers = [], ...message } = {}) =>
      ask(
        rawMessage({
          ...{ cookie: ownCookie, body: messageBody(changes), headers: ['Connection: close', ...headers] },
          ...message,
        }),
      ),
    byName({ id = ID, channel = 'c1', cookie = ownCookie, headers = [] } = {}) {
      const path = BOT_PATH.replace('/message/sse', '/message/run');
      const query = new URLSearchParams({ custom_channel_id: channel, custom_message_id: id });
      const lines = [`GET ${path}?${query} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${cookie}`];
      return ask(`${[...lines, 'Connection: close', ...headers].join('\r\n')}\r\n\r\n`);
    },
    async leave(client) {
      const before = await relay.openMessages();
      client.socket.destroy();
      await until(async () => (await relay.openMessages()) < before);
    },
  };
}

/** What the bot service begins a stream with; undefined if it answers by itself. */
export type First = (request: RawRequest, socket: Socket) => readonly string[] | undefined;

/** A bot service that begins each stream with a head and what `first` returns, and the ways to go on with the newest. */
export async function startJoinService(first: First) {
  /** The bot service's end of each stream, in the order of the requests. */
  const streams: Socket[] = [];
  const upstream = await startRawUpstream((socket, request) => {
    streams.push(socket);
    const events = first(request, socket);
    if (events) socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), ...events.map(chunk)]));
  });
  return {
    ...{ upstream, streams },
    /** Writes events into the newest stream. */
    emit: (...events: readonly string[]) => void streams.at(-1)?.write(Buffer.concat(events.map(chunk))),
    /** Ends it. */
    finish: () => void streams.at(-1)?.write(LAST_CHUNK),
  };
}

export type JoinPair = Awaited<ReturnType<typeof startJoinPair>>;

/** Starts a relay in front of such a bot service. */
export async function startJoinPair(
  environment: Record<string, string> = {},
  first: First = () => [],
  sessionLimits: Partial<SessionLimits> = {},
) {
  const service = await startJoinService(first);
  const { upstream, streams } = service;
  const settings = { JOIN: 'on', JOIN_GRACE_MS: '600000', ...environment };
  const pair = await startRelayBefore(upstream, settings, sessionLimits);
  const clients: RawClient[] = [];
  return {
    ...pair,
    ...service,
    ...waysToAsk(pair.relay, pair.cookie, clients),
    /** The messages that have come, without the resumptions. */
    runs: () => upstream.requests.filter(({ all }) => all('last-event-id').length === 0),
    /** The socket of the newest request. */
    get service(): Socket {
      const newest = streams.at(-1);
      if (!newest) throw new Error('no request has come');
      return newest;
    },
    async close() {
      for (const { socket } of clients) socket.destroy();
      await pair.close();
    },
  };
}

/** The body of the answer that a client has got when it is over. */
export async function bodyOf(client: RawClient): Promise<string> {
  await client.closed;
  const text = client.text();
  const isChunked = /^Transfer-Encoding: chunked\r$/im.test(text);
  return isChunked ? dechunk(text).body : text.slice(text.indexOf('\r\n\r\n') + 4);
}

/** The status of the answer that a client has got. */
export function statusOf(client: RawClient): number {
  return Number(client.text().slice(9, 12));
}

/** What a client has got whose message has failed after it had left: a stream with one error event. */
export async function errorEventOf(client: RawClient): Promise<ErrorEvent> {
  await client.closed;
  const { status, headers, body } = parseAnswer(client.text());
  expect([status, headers['content-type']]).toEqual([200, 'text/event-stream']);
  return errorEventIn(body);
}

/** The problem that a client has got as its answer. */
export async function problemOf(client: RawClient): Promise<Record<string, unknown>> {
  await client.closed;
  const text = client.text();
  return JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4)) as Record<string, unknown>;
}
