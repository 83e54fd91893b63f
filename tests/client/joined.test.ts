import type { Socket } from 'node:net';
import { afterAll, describe, expect } from '@jest/globals';
import { type BotEvent, createBotClient, type MessageState } from '../../src/client/session/bot-client.ts';
import { readAll } from '../harness/clients/client-pair.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { type CuttingFront, startCuttingFront } from '../harness/faults/cutting-front.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  jsonEvent as event,
  type RawRequest,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const closers: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const dataOf = (events: readonly BotEvent[]) => events.map(({ raw }) => raw);
const POST = 'POST message/sse';
const JOIN = 'GET message/run';

interface Said {
  readonly front: CuttingFront;
  /** Called with each event that was read. */
  readonly onEvent: (data: unknown, front: CuttingFront) => void;
  readonly signal?: AbortSignal;
}

/** Sends a message to a relay with joining on, whose bot says `1`, and reads the answer. */
async function say({ front, onEvent, signal }: Said) {
  const states: MessageState[] = [];
  const stream = front.client.send('hi', { signal, onState: (state) => states.push(state) });
  const read = readAll(stream, ({ raw }) => onEvent(raw, front));
  await until(() => front.upstream.requests.length > 0);
  front.emit(event(1));
  const { events, error } = await read;
  const runs = front.upstream.requests.length;
  return { said: dataOf(events), error, calls: front.calls, runs, states };
}
async function withRelay(
  onEvent: Said['onEvent'],
  { signal, ...environment }: { signal?: AbortSignal } & Record<string, unknown> = {},
) {
  const front = await startCuttingFront(environment as Record<string, string>);
  closers.push(front.close);
  return say({ front, onEvent, ...(signal && { signal }) });
}

describe('a message whose connection breaks', () => {
  testSideBySide([
    [
      'goes on after each of ten breaks, shows every event once, and is sent once',
      async () => {
        const { states, ...rest } = await withRelay((data, { cut, emit, finish }) => {
          cut();
          if (data === 11) finish();
          else emit(event(Number(data) + 1));
        });
        expect(rest).toEqual({
          said: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
          error: undefined,
          calls: [POST, ...Array(11).fill(JOIN)],
          runs: 1,
        });
        expect(states.slice(0, 4)).toEqual(['streaming', 'waiting', 'streaming', 'waiting']);
      },
    ],
    [
      'goes on after the last id, and shows what came behind it once',
      async () => {
        const more = [event('kept', 7), event('a'), event('b'), event('kept', 8), event('end')];
        const { said, calls, runs } = await withRelay((data, { cut, emit, finish }) => {
          if (data === 1) emit(...more.slice(0, 3));
          if (data === 'b' || data === 'kept') cut();
          if (data === 'b') emit(...more.slice(3));
          if (data === 'end') finish();
        });
        expect(said).toEqual([1, 'kept', 'a', 'b', 'kept', 'end']);
        expect(calls).toEqual([POST, `${JOIN} 7`, `${JOIN} 8`]);
        expect(runs).toBe(1);
      },
    ],
    [
      'is whole if its run has ended meanwhile',
      async () => {
        const { said, error, runs } = await withRelay((data, { cut, emit, finish }) => {
          if (data !== 1) return;
          cut();
          emit(event(2), event(3));
          finish();
        });
        expect({ said, error, runs }).toEqual({ said: [1, 2, 3], error: undefined, runs: 1 });
      },
    ],
    [
      'fails as before if the relay has no run to join, and is sent once',
      async () => {
        const { said, error, calls, runs } = await withRelay((_, { cut }) => cut(), { JOIN: 'off' });
        expect(error).toMatchObject({ code: 'connection_lost', status: 0 });
        expect({ said, calls, runs }).toEqual({ said: [1], calls: [POST, JOIN], runs: 1 });
      },
    ],
    [
      'fails with what its run has failed with',
      async () => {
        const { said, error, runs } = await withRelay((_, { cut, upstream }) => {
          cut();
          upstream.sockets[0]?.destroy();
        });
        expect(error).toMatchObject({ code: 'upstream_stream_broken', status: 502, retryable: false });
        expect({ said, runs }).toEqual({ said: [1], runs: 1 });
      },
    ],
    [
      'is not asked for again once it is stopped',
      async () => {
        const stop = new AbortController();
        const { error, calls } = await withRelay(
          (_, { cut }) => {
            cut();
            setImmediate(() => stop.abort('stopped'));
          },
          { signal: stop.signal },
        );
        expect(error).toBe('stopped');
        expect(calls).toEqual([POST]);
      },
    ],
    [
      'ends as soon as its user has signed out, however long the next pause is',
      async () => {
        const busy = problemOf({ status: 503, retryable: 'new message' });
        const headers = { 'Retry-After': '50' };
        let asked = 0;
        const front = await startCuttingFront(
          {},
          {
            async fetch(url, init) {
              if (!String(url).includes('/message/run')) return fetch(url, init);
              // Only then does the long pause begin.
              setImmediate(() => void front.client.signOut());
              asked += 1;
              return new Response(busy, { status: 503, headers });
            },
          },
        );
        closers.push(front.close);
        const { said, error } = await say({ front, onEvent: (_, { cut }) => cut() });
        expect(error).toMatchObject({ code: 'session_ended', status: 401 });
        expect({ said, asked }).toEqual({ said: [1], asked: 1 });
      },
    ],
  ]);
});

/** A server in the place of the relay: `joined` answers those who ask for a message by its name. */
async function withServer(
  sent: (socket: Socket) => void,
  joined: (socket: Socket, request: RawRequest, times: number) => void,
) {
  let times = 0;
  const server = await startRawUpstream((socket, request) => {
    if (request.requestLine.startsWith('POST')) sent(socket);
    else joined(socket, request, ++times);
  });
  closers.push(server.close);
  const client = createBotClient({ baseUrl: server.url, namespace: 'a', botProviderName: 'b' });
  const { events, error } = await readAll(client.send('hi'));
  const messages = server.requests.filter(({ requestLine }) => requestLine.startsWith('POST'));
  return { said: dataOf(events), error, messages: messages.length, times, server };
}
const cutAfter = (text: string) => (socket: Socket) =>
  void socket.end(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]));
const whole = (text: string) => (socket: Socket) => void socket.end(wholeStream(text));
const problem = (status: number, fields: object) => (socket: Socket) =>
  void socket.end(plainAnswer(`${status} No`, [], problemOf({ status, ...fields })));
const problemOf = (fields: object) =>
  JSON.stringify({ type: 'about:blank', code: 'draining', detail: 'No.', ...fields });

describe('a message whose stream can be joined', () => {
  testSideBySide([
    [
      'is asked for by its conversation and its id',
      async () => {
        const { server } = await withServer(cutAfter(event(1)), whole(event(1)));
        const [sent, asked] = server.requests;
        const { customChannelId, customMessageId } = JSON.parse(String(sent?.body));
        const query = new URLSearchParams(/\?(\S+) HTTP/.exec(asked?.requestLine ?? '')?.[1]);
        const expected = { custom_channel_id: customChannelId, custom_message_id: customMessageId };
        expect(Object.fromEntries(query)).toEqual(expected);
        expect(asked?.body).toHaveLength(0);
      },
    ],
    [
      'is asked for again when the relay, or a proxy, cannot answer now',
      async () => {
        const busy = [
          (socket: Socket) => void socket.destroy(),
          problem(503, { retryable: 'new message' }),
          (socket: Socket) => void socket.end(plainAnswer('502 Bad', [], '<h1>Bad</h1>')),
          (socket: Socket) => void socket.end(plainAnswer('503 Away', [], '<h1>Away</h1>')),
          (socket: Socket) => void socket.end(STREAM_HEAD),
          whole(event(1) + event(2)),
        ];
        const { said, error, times } = await withServer(cutAfter(event(1)), (socket, _, times) =>
          busy[times - 1]?.(socket),
        );
        expect({ said, error, times }).toEqual({ said: [1, 2], error: undefined, times: 6 });
      },
    ],
    [
      'is not called unsent where a load balancer answers when the rest is asked for',
      async () => {
        let posts = 0;
        const { said, error } = await withServer(
          (socket) => {
            if (++posts === 1) cutAfter(`retry: 1\nid: 1\n${event(1)}`)(socket);
            else socket.end(plainAnswer('503 Away', [], '<h1>Away</h1>'));
          },
          problem(404, { code: 'not_found' }),
        );
        expect(error).toMatchObject({ code: 'unreachable', status: 503, retryable: undefined });
        expect(said).toEqual([1]);
        expect(posts).toBeGreaterThan(1);
      },
    ],
    ...['404 Not Found', '501 Not Implemented', '200 OK'].map(
      (status) =>
        [
          `fails as before at a relay that cannot be asked for it, and answers ${status}`,
          async () => {
            const page = plainAnswer(status, ['Content-Type: text/html'], '<h1>Hello</h1>');
            const { said, error, times } = await withServer(
              cutAfter(event(1)),
              (socket) => void socket.end(page),
            );
            expect(error).toMatchObject({ code: 'connection_lost' });
            expect({ said, times }).toEqual({ said: [1], times: 1 });
          },
        ] as const,
    ),
    [
      'ends with the refusal of its session',
      async () => {
        const { error, times } = await withServer(
          cutAfter(event(1)),
          problem(401, { code: 'unauthenticated', retryable: false }),
        );
        expect({ error, times }).toMatchObject({ error: { code: 'unauthenticated' }, times: 1 });
      },
    ],
    [
      'ends with what it has failed with before its stream began',
      async () => {
        const { error, times } = await withServer(
          (socket) => socket.destroy(),
          problem(502, { code: 'upstream_bad_response', retryable: false }),
        );
        expect({ error, times }).toMatchObject({ error: { code: 'upstream_bad_response' }, times: 1 });
      },
    ],
    [
      'fails as before if what is joined is another answer from its second event on',
      async () => {
        const { said, error } = await withServer(
          cutAfter(event(1) + event(2)),
          whole(event(1) + event('other') + event(3)),
        );
        expect(error).toMatchObject({ code: 'connection_lost' });
        expect(said).toEqual([1, 2]);
      },
    ],
    ...[
      ['is that of another message', event('other') + event(2)],
      ['has less than was read before', ''],
    ].map(
      ([what, joined = '']) =>
        [
          `fails as before if what is joined ${what}`,
          async () => {
            const { said, error, times } = await withServer(cutAfter(event(1)), whole(joined));
            expect(error).toMatchObject({ code: 'connection_lost' });
            expect({ said, times }).toEqual({ said: [1], times: 1 });
          },
        ] as const,
    ),
  ]);
});
