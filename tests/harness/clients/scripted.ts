import type { Socket } from 'node:net';
import { expect } from '@jest/globals';
import { botConversation } from '../../../src/client/channel/bot-conversation.ts';
import type { BotClient, MessageState } from '../../../src/client/session/bot-client.ts';
import { testSideBySide } from '../clock/side-by-side.ts';
import {
  chunk,
  jsonEvent,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../service/raw-upstream.ts';
import { dataOf, readAll } from './client-pair.ts';
import { type TestOptions, testClient } from './test-client.ts';

/** Answers one request on its socket. */
export type Answer = (socket: Socket, request: RawRequest) => void;

/** Makes the pauses before a resumption short. */
export const SOON = 'retry: 1\n\n';
/** An event for each id. */
export const ids = (...numbers: number[]) => numbers.map((id) => jsonEvent(id, id)).join('');
/** So many times the same call. */
export const times = (count: number, call: string) => Array<string>(count).fill(call);

/** A problem of the relay (RFC 9457) with these fields. */
export const problemOf = (fields: { readonly code: string; readonly [name: string]: unknown }) =>
  JSON.stringify({ type: `/docs/problems.md#${fields.code}`, status: 502, detail: 'No.', ...fields });
/** The error event with which the relay ends a stream. */
export const errorEvent = (code: string, fields: object = {}) =>
  `event: error\ndata: ${problemOf({ code, ...fields })}\n\n`;
/** A whole stream. */
export const ends =
  (...events: readonly string[]): Answer =>
  (socket) =>
    void socket.end(wholeStream(events.join('')));
/** A stream whose connection is cut behind these events. */
export const breaks =
  (...events: readonly string[]): Answer =>
  (socket) =>
    void socket.end(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(events.join(''))]));
/** A stream that does not end. */
export const begins =
  (...events: readonly string[]): Answer =>
  (socket) =>
    void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(events.join(''))]));
/** A refusal of the relay. */
export const refuses =
  (status: number, code: string, fields: object = {}): Answer =>
  (socket) =>
    void socket.end(plainAnswer(`${status} No`, [], problemOf({ status, code, ...fields })));
/** An answer of a proxy. */
export const page =
  (status: number): Answer =>
  (socket) =>
    void socket.end(plainAnswer(`${status} Page`, ['Content-Type: text/html'], '<h1>Page</h1>'));

export interface Script extends Partial<TestOptions> {
  /** The answers to messages and to requests of a history, in order; later ones get the last. */
  readonly answers: readonly Answer[];
  /** The answers to those who ask for a message by its name. Without any, there is no such run. */
  readonly joined?: readonly Answer[];
}

interface Scripted {
  readonly client: BotClient;
  /** Each request but those of sessions: `POST`, `GET`, or `RUN` for a run by its name, and the last event id. */
  calls(): string[];
  /** The same requests. */
  requests(): RawRequest[];
  close(): Promise<void>;
}

const NO_RUN = [refuses(404, 'not_found', { retryable: false })];
const isOfSession = ({ requestLine }: RawRequest) => requestLine.includes(' /auth/');
const isByName = ({ requestLine }: RawRequest) => requestLine.includes('/message/run?');

/** A server in the place of the relay, which answers as `answers` says and signs everybody in, and a client of it. */
export async function scripted({ answers, joined = NO_RUN, ...options }: Script): Promise<Scripted> {
  const counts = { sent: 0, joined: 0 };
  const server = await startRawUpstream((socket, request) => {
    if (isOfSession(request)) {
      const { username = '' } = JSON.parse(`${request.body || '{}'}`) as { username?: string };
      const absoluteExpiresAt = new Date(2_000_000_000_000 + server.requests.length).toISOString();
      const session = { user: { id: username, name: username }, idleExpiresAt: '', absoluteExpiresAt };
      return void socket.end(plainAnswer('200 OK', [], JSON.stringify(session)));
    }
    const which = isByName(request) ? 'joined' : 'sent';
    const all = which === 'joined' ? joined : answers;
    counts[which] += 1;
    all[Math.min(counts[which], all.length) - 1]?.(socket, request);
  });
  const requests = () => server.requests.filter((request) => !isOfSession(request));
  return {
    client: testClient({ baseUrl: server.url, namespace: 'a', botProviderName: 'b', ...options }),
    requests,
    calls: () =>
      requests().map((request) => {
        const method = isByName(request) ? 'RUN' : request.requestLine.replace(/ .*/, '');
        // A header is bytes; an id may have any character.
        const ids = request.all('Last-Event-ID').map((id) => `${Buffer.from(id, 'latin1')}`);
        return [method, ...ids].join(' ');
      }),
    close: server.close,
  };
}

/** What a client reads of such a server, and asks it. */
interface ScriptRow extends Script {
  readonly title: string;
  /** What is read, if the row says so. */
  readonly said?: readonly unknown[];
  /** The error at the end; none if it is left out. */
  readonly error?: object;
  readonly calls: readonly string[];
  readonly states?: readonly MessageState[];
}

/** What is asked for is a message, or the history of a conversation. */
async function checkScript(row: ScriptRow, isHistory = false): Promise<void> {
  const { title: _, said, error: wanted, calls, states: through, ...script } = row;
  const { client, ...server } = await scripted(script);
  const states: MessageState[] = [];
  const stream = isHistory
    ? botConversation(client, 'c').history()
    : client.send('hi', { onState: (state) => states.push(state) });
  const { events, error } = await readAll(stream);
  await server.close();
  expect({ error, calls: server.calls() }).toEqual({
    error: wanted && expect.objectContaining({ name: 'RelayError', ...wanted }),
    calls,
  });
  if (said) expect(dataOf(events)).toEqual(said);
  if (through) expect(states).toEqual(through);
  // Whatever is asked for again, it is the same message.
  const bodies = server.requests().filter(({ requestLine }) => requestLine.startsWith('POST'));
  expect(new Set(bodies.map(({ body }) => `${body}`)).size).toBeLessThanOrEqual(1);
}
/** Has a test check each row, all side by side. */
export const checkScripts = (rows: readonly ScriptRow[], isHistory = false) =>
  testSideBySide(rows.map((row) => [row.title, () => checkScript(row, isHistory)]));
