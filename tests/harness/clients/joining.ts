import type { Socket } from 'node:net';
import { expect } from '@jest/globals';
import type { SessionLimits } from '../../../src/authenticate/sessions/session.ts';
import { until } from '../clock/until.ts';
import { BOT_PATH } from '../relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, type RawRequest, STREAM_HEAD } from '../service/raw-upstream.ts';
import { parseAnswer } from './call.ts';
import { type ErrorEvent, errorEventIn } from './error-event.ts';
import { dechunk, type RawClient, rawClient } from './raw-client.ts';

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

export interface JoinPair extends RelayAndUpstream {
  /** Sends a message; `message` can set its parts, and `changes` those of its body. */
  say(changes?: object, message?: Parameters<RelayAndUpstream['ask']>[0]): RawClient;
  /** Asks for the run of a message by its id alone. */
  byName(options?: {
    id?: string;
    channel?: string;
    cookie?: string;
    headers?: readonly string[];
  }): RawClient;
  /** Closes a client's connection; resolves when the relay knows it. */
  leave(client: RawClient): Promise<void>;
  /** The messages that have come, without the resumptions. */
  runs(): readonly RawRequest[];
  /** The socket of the newest request. */
  readonly service: Socket;
  /** Writes events into the stream of the newest request. */
  emit(...events: readonly string[]): void;
  /** Ends that stream. */
  finish(): void;
}

/** Starts a relay in front of a bot service that begins each stream with a head and what `first` returns. */
export async function startJoinPair(
  environment: Record<string, string> = {},
  first: (request: RawRequest, socket: Socket) => readonly string[] | undefined = () => [],
  sessionLimits: Partial<SessionLimits> = {},
): Promise<JoinPair> {
  let newest: Socket | undefined;
  const pair = await startRelayAndUpstream(
    (socket, request) => {
      newest = socket;
      const events = first(request, socket);
      if (events) socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), ...events.map(chunk)]));
    },
    { JOIN: 'on', JOIN_GRACE_MS: '600000', ...environment },
    sessionLimits,
  );
  const clients: RawClient[] = [];
  const { ask } = pair;
  return {
    ...pair,
    async close() {
      for (const { socket } of clients) socket.destroy();
      await pair.close();
    },
    say(changes = {}, message = {}) {
      return ask({
        body: messageBody(changes),
        ...message,
        headers: ['Connection: close', ...(message.headers ?? [])],
      });
    },
    byName({ id = ID, channel = 'c1', cookie = pair.cookie, headers = [] } = {}) {
      const path = BOT_PATH.replace('/message/sse', '/message/run');
      const query = new URLSearchParams({ custom_channel_id: channel, custom_message_id: id });
      const lines = [`GET ${path}?${query} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${cookie}`];
      const head = [...lines, 'Connection: close', ...headers].join('\r\n');
      const client = rawClient(pair.relay.port, `${head}\r\n\r\n`);
      clients.push(client);
      return client;
    },
    async leave(client) {
      const before = pair.relay.open.count();
      client.socket.destroy();
      await until(() => pair.relay.open.count() < before);
    },
    runs: () => pair.upstream.requests.filter(({ all }) => all('last-event-id').length === 0),
    get service() {
      if (!newest) throw new Error('no request has come');
      return newest;
    },
    emit(...events) {
      newest?.write(Buffer.concat(events.map(chunk)));
    },
    finish() {
      newest?.write(LAST_CHUNK);
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
