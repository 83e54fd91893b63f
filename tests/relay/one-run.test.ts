import type { Socket } from 'node:net';
import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
import { createParser } from 'eventsource-parser';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { type FieldClient, fieldClient, type Received } from '../harness/clients/field-client.ts';
import { holdTimers } from '../harness/clock/hold-timers.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const json = (eventType: string, fields: object = {}) =>
  JSON.stringify({ eventType, requestId: 'run-1', ...fields });
const event = (eventType: string) => `data: ${json(eventType)}\n\n`;
const INIT = event('asgard.run.init');
const KEPT = `retry: 1\nid: 1\ndata: ${json('asgard.message.complete', { n: 1 })}\n\n`;
const DELTA = `data: ${json('asgard.message.delta', { n: 2 })}\n\n`;
const REST = event('asgard.message.delta') + event('asgard.run.done');
/** A whole answer. */
const WHOLE = INIT + KEPT + DELTA + REST;

const begun = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);

/** One way in which a bot service breaks a message. */
interface Row {
  readonly what: string;
  readonly breaks: (socket: Socket, letTimePass: () => void) => void;
  /** How long it does not answer, in ms. `letTimePass` moves the clocks of the process so far: it runs alone. */
  readonly silentMs?: number;
  readonly environment?: Record<string, string>;
  /** Whether the client gets the whole answer all the same; if not, it gets an error. */
  readonly isWhole: boolean;
}

const resetAfter = (text: string) => (socket: Socket) => {
  socket.write(begun(text));
  // However busy the process is, it reads the bytes between the timer and this.
  setTimeout(() => setImmediate(() => socket.resetAndDestroy()), 50);
};

/** The ways in which messages of clients in the field became several runs, or broken answers looked complete. */
const ROWS: readonly Row[] = [
  { what: 'breaks the stream after an id', breaks: resetAfter(INIT + KEPT + DELTA), isWhole: true },
  {
    what: 'breaks the stream in the middle of an event',
    breaks: resetAfter(`${INIT}data: {"ev`),
    isWhole: false,
  },
  {
    what: 'breaks the stream after an id, in the middle of an event with an id',
    breaks: resetAfter(`${INIT}${KEPT}id: 2\ndata: {"ev`),
    isWhole: true,
  },
  {
    what: 'answers 503',
    breaks: (socket) => void socket.write(plainAnswer('503 No', ['Retry-After: 1'])),
    isWhole: false,
  },
  {
    what: 'does not answer in time',
    breaks: (_socket, letTimePass) => letTimePass(),
    silentMs: 54_321,
    environment: { UPSTREAM_RESPONSE_TIMEOUT_MS: '54321' },
    isWhole: false,
  },
  {
    what: 'carries an id and does not end before the deadline',
    breaks: (socket) => void socket.write(begun(INIT + KEPT)),
    environment: { MAX_EXECUTION_MS: '3000' },
    isWhole: false,
  },
  {
    what: 'ends the stream cleanly in mid-run',
    breaks: (socket) => void socket.write(wholeStream(INIT + DELTA)),
    isWhole: false,
  },
  {
    what: 'ends the stream cleanly in mid-run, after an id',
    breaks: (socket) => void socket.write(wholeStream(INIT + KEPT)),
    isWhole: true,
  },
  {
    what: 'reads the message on a kept connection and closes without a byte',
    breaks: (socket) => void socket.destroy(),
    isWhole: false,
  },
];

interface BreakingService extends RelayAndUpstream {
  /** How many messages have come that are paid: those without `Last-Event-ID`. */
  runs(): number;
}

/**
 * Starts a bot service that answers a first message whole, so that a kept connection is there, and breaks the messages
 * after it. A resumption gets the rest of the answer.
 */
async function startBreakingService({ breaks, silentMs, environment }: Row): Promise<BreakingService> {
  let answered = 0;
  let letTimePass = () => {};
  const answer = (socket: Socket, { all }: RawRequest) => {
    if (answered++ === 0) socket.write(wholeStream(WHOLE));
    else if (all('last-event-id').length > 0) socket.write(wholeStream(DELTA + REST));
    else breaks(socket, letTimePass);
  };
  const pair = await startRelayAndUpstream(answer, environment);
  await (await pair.relay.send(pair.cookie)).text();
  if (silentMs !== undefined) letTimePass = holdTimers(silentMs);
  const runs = () => pair.upstream.requests.filter(({ all }) => all('last-event-id').length === 0).length - 1;
  return { ...pair, runs };
}

const RESUMES = 3;

/**
 * Sends a message once and reads its answer with `eventsource-parser`. It asks for the rest of a stream that broke after
 * an id, as the newest clients do; a status other than 200 is final.
 */
async function parserClient({
  relay,
  cookie,
}: Pick<RelayAndUpstream, 'relay' | 'cookie'>): Promise<Pick<Received, 'data' | 'error'>> {
  const data: Received['data'] = [];
  let lastId = '';
  for (let left = RESUMES; ; left--) {
    const response = await relay.send(cookie, lastId ? { headers: { 'Last-Event-ID': lastId } } : {});
    if (response.status !== 200) return { data, error: response.status };
    const events = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>)
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(new EventSourceParserStream());
    try {
      for await (const event of events) {
        data.push(JSON.parse(event.data) as Received['data'][number]);
        lastId = event.id || lastId;
      }
      return { data, error: undefined };
    } catch (error) {
      if (lastId === '' || left === 0) return { data, error };
      await sleep(10);
    }
  }
}

type Client = (service: BreakingService) => Promise<Pick<Received, 'data' | 'error'>>;
const field =
  (retries: 'always' | 'unless-4xx' | 'after-an-id'): Client =>
  ({ relay: { url }, cookie }) =>
    fieldClient({ url, cookie, retries });

const CLIENTS: [string, Client][] = [
  ['an old client, which sends again after every error', field('always')],
  ['a client that sends again after every error but a 4xx', field('unless-4xx')],
  ['a client that sends again to resume', field('after-an-id')],
  ['a reader that resumes', parserClient],
];

/** Expects that a client has had one run of a message, which looks complete only if it is. */
async function expectOneRun(client: Client, row: Row): Promise<void> {
  const service = await startBreakingService(row);
  try {
    const { data, error } = await client(service);
    expect(service.runs()).toBe(1);
    expect(error).toBeUndefined();
    expect(data.at(-1)?.eventType).toBe(row.isWhole ? 'asgard.run.done' : 'asgard.run.error');
    const numbers = data.flatMap(({ n }) => n ?? []);
    if (row.isWhole) expect(numbers).toEqual([1, 2]);
    expect(new Set(numbers).size).toBe(numbers.length);
  } finally {
    await service.close();
  }
}

const casesOf = (rows: readonly Row[]) =>
  rows.flatMap((row) =>
    CLIENTS.map(([name, client]): [string, () => Promise<void>] => [
      `${name}, has one run, which looks complete only if it is, when the service ${row.what}`,
      () => expectOneRun(client, row),
    ]),
  );

const SILENT = ROWS.filter(({ silentMs }) => silentMs !== undefined);
const OTHERS = ROWS.filter(({ silentMs }) => silentMs === undefined);
afterEach(() => void jest.restoreAllMocks());

testSideBySide(casesOf(OTHERS), 6);

test.each(casesOf(SILENT))('%s', (_title, run) => run());

describe('clients in the field', () => {
  const event = (n: number) => `data: ${JSON.stringify({ eventType: 'asgard.message.delta', n })}\n\n`;

  const opened: RelayAndUpstream[] = [];
  afterAll(() => Promise.all(opened.map((pair) => pair.close())));

  async function start(onRequest: (socket: Socket) => void, environment: Record<string, string> = {}) {
    const pair = await startRelayAndUpstream(onRequest, environment);
    opened.push(pair);
    return { ...pair, client: { url: pair.relay.url, cookie: pair.cookie } };
  }

  /** Starts a service that sends two events, then the end, each only after another heartbeat of the relay. */
  async function silent() {
    const heartbeats = async () => total(await started.relay.metricsText(), 'bot_relay_heartbeats_total', {});
    const started = await start(
      async (socket) => {
        socket.write(STREAM_HEAD);
        for (const piece of [chunk(event(1)), chunk(event(2)), LAST_CHUNK]) {
          const before = await heartbeats();
          await until(async () => (await heartbeats()) > before);
          socket.write(piece);
        }
      },
      { HEARTBEAT_MS: '20' },
    );
    return started;
  }

  type Case = [title: string, run: () => Promise<void>];
  const RETRIES = ['always', 'unless-4xx', 'after-an-id'] as const;
  const withoutMessages = 'a stream with heartbeats gives no extra message';

  const SILENT: Case[] = [
    ...RETRIES.map(
      (retries): Case => [
        `${withoutMessages} to fetch-event-source, retries: ${retries}`,
        async () => {
          const { client, upstream } = await silent();
          const { data, error } = await fieldClient({ ...client, retries });
          expect(error).toBeUndefined();
          expect(data.map(({ n }) => n)).toEqual([1, 2]);
          expect(upstream.requests).toHaveLength(1);
        },
      ],
    ),
    [
      `${withoutMessages} to eventsource-parser, which sees them as comments`,
      async () => {
        const { relay, cookie } = await silent();
        const data: string[] = [];
        const comments: string[] = [];
        const parser = createParser({
          onEvent: (message) => data.push(message.data),
          onComment: (comment) => comments.push(comment),
        });
        parser.feed(await (await relay.send(cookie)).text());
        expect(data.map((each) => `data: ${each}\n\n`)).toEqual([event(1), event(2)]);
        expect(comments.length).toBeGreaterThan(0);
      },
    ],
  ];

  async function oldClientSendsAgain(): Promise<void> {
    const tooLarge = `data: {"half":"${'x'.repeat(70_000)}`;
    const { client, upstream } = await start(
      (socket) => void socket.end(`${STREAM_HEAD}fffff\r\n${tooLarge}`),
    );
    const { error } = await fieldClient({ ...client, retries: 'always' });
    expect(error).toMatchObject({ message: expect.stringMatching(/./) });
    expect(upstream.requests).toHaveLength(4);
  }

  const OLD: Case = [
    'an old client sends a message four times if its stream is cut, so that the tests below would see retries',
    oldClientSendsAgain,
  ];

  /** What a page sends when its chat opens: it has no id, so nothing joins it once it has ended. */
  const OPENING = JSON.stringify({ customChannelId: 'c', text: '', action: 'RESET_CHANNEL' });
  /** As often as the hook is let open at most; in the field it goes on. */
  const MOST_OPENINGS = 20;

  type Opens = (way: Omit<FieldClient, 'retries' | 'body'>) => Promise<Received>;

  const once =
    (retries: FieldClient['retries']): Opens =>
    (way) =>
      fieldClient({ ...way, retries, body: OPENING });

  /** The React hook of the newest library: an opening that was answered with another status than 200 is sent anew. */
  const hook: Opens = async (way) => {
    for (let openings = 1; ; openings += 1) {
      const received = await once('after-an-id')(way);
      if (received.error === undefined || openings === MOST_OPENINGS) return received;
    }
  };

  const CLIENTS: [string, Opens, postings: number][] = [
    ['an old client', once('always'), 4],
    ['a client that spares 4xx', once('unless-4xx'), 4],
    ['the hook of the newest client', hook, MOST_OPENINGS],
  ];

  async function expectOnePosting(opens: Opens): Promise<void> {
    const pair = await startRelayAndUpstream((socket) => socket.write(plainAnswer('500 No', [])));
    try {
      let postings = 0;
      const count = () => {
        postings += 1;
      };
      const way = { url: pair.relay.url, cookie: pair.cookie, onSend: count };
      const { data, error } = await opens(way);
      expect(error).toBeUndefined();
      expect(data).toEqual([
        expect.objectContaining({
          eventType: 'asgard.run.error',
          fact: { runError: { error: expect.objectContaining({ code: 'upstream_bad_response' }) } },
        }),
      ]);
      expect([postings, pair.upstream.requests.length]).toEqual([1, 1]);
    } finally {
      await pair.close();
    }
  }

  /** Shows that the client would post again: a message that has not left keeps its status, and costs nothing. */
  async function expectPostings(opens: Opens, expected: number): Promise<void> {
    const relay = await startRelay(`http://127.0.0.1:${await freePort()}`, { RATE_LIMIT: '1000' });
    try {
      let postings = 0;
      const count = () => {
        postings += 1;
      };
      const cookie = await relay.signIn();
      const { error } = await opens({ url: relay.url, cookie, onSend: count });
      expect(error).toMatchObject({ status: 502 });
      expect(postings).toBe(expected);
    } finally {
      await relay.close();
    }
  }

  const OPENINGS: Case[] = CLIENTS.flatMap(([name, opens, postings]): Case[] => [
    [
      `${name} posts once and shows the error, if the service refuses its opening with 500`,
      () => expectOnePosting(opens),
    ],
    [
      `${name} posts again while the service cannot be reached, so that the test above would see it`,
      () => expectPostings(opens, postings),
    ],
  ]);

  testSideBySide([...SILENT, OLD, ...OPENINGS], 6);
});
