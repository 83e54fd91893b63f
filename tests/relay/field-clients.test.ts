import type { Socket } from 'node:net';
import { afterAll, expect } from '@jest/globals';
import { createParser } from 'eventsource-parser';
import { type FieldClient, fieldClient, type Received } from '../harness/clients/field-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, plainAnswer, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const HEARTBEAT_MS = 100;
const event = (n: number) => `data: ${JSON.stringify({ eventType: 'asgard.message.delta', n })}\n\n`;

const opened: RelayAndUpstream[] = [];
afterAll(() => Promise.all(opened.map((pair) => pair.close())));

async function start(onRequest: (socket: Socket) => void, environment: Record<string, string> = {}) {
  const pair = await startRelayAndUpstream(onRequest, environment);
  opened.push(pair);
  return { ...pair, client: { url: pair.relay.url, cookie: pair.cookie } };
}

/** Sends two events with silence around them, then the end. */
function withSilence(socket: Socket): void {
  const pieces = [event(1), event(2), ''];
  socket.write(STREAM_HEAD);
  const timer = setInterval(() => {
    const piece = pieces.shift();
    if (!piece) clearInterval(timer);
    socket.write(piece ? chunk(piece) : LAST_CHUNK);
  }, 2.5 * HEARTBEAT_MS);
}

type Case = [title: string, run: () => Promise<void>];
const RETRIES = ['always', 'unless-4xx', 'after-an-id'] as const;
const silent = () => start(withSilence, { HEARTBEAT_MS: String(HEARTBEAT_MS) });
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
  const { client, upstream } = await start((socket) => void socket.end(`${STREAM_HEAD}fffff\r\n${tooLarge}`));
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
