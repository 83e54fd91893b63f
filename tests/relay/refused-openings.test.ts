import { expect } from '@jest/globals';
import { type FieldClient, fieldClient, type Received } from '../harness/clients/field-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { startRelay } from '../harness/relay/relay.ts';
import { plainAnswer, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';

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

testSideBySide(
  CLIENTS.flatMap(([name, opens, postings]): [string, () => Promise<void>][] => [
    [
      `${name} posts once and shows the error, if the service refuses its opening with 500`,
      () => expectOnePosting(opens),
    ],
    [
      `${name} posts again while the service cannot be reached, so that the test above would see it`,
      () => expectPostings(opens, postings),
    ],
  ]),
  6,
);
