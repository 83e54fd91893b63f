import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { INIT, messageBody, statusOf } from '../harness/clients/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, startJoinInstances } from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import type { RawRequest } from '../harness/service/raw-upstream.ts';

jest.setTimeout(600_000);

const STREAMS = 24;
/** So long after Redis was emptied, each run has put its name back: it renews it each second. */
const RENEWED_MS = 1_500;

let all: JoinInstances;
afterEach(() => all.close());

const textOf = ({ body }: RawRequest) => (JSON.parse(String(body)) as { text: string }).text;
const messageOf = (text: string) => ({
  ...{ text, customMessageId: `message-number-${text}`, customChannelId: text },
});

/** Opens quiet streams at one instance, empties Redis, and says the messages again at the other, so much later. */
async function runsTwice(afterMs: number): Promise<number> {
  all = await startJoinInstances(2, {}, () => [INIT]);
  const { upstream, redis, relays } = all;
  const texts = Array.from({ length: STREAMS }, (_, n) => `quiet-${n}`);
  const own = texts.map((text) => all.say(0, messageOf(text)));
  await Promise.all(own.map((client) => client.waitFor('run.init')));
  const other = relays[1] as TestRelay;
  await redis.command('FLUSHALL');
  const emptiedAt = performance.now();
  // Its sessions are gone, too.
  const cookie = await other.signIn();
  await sleep(Math.max(0, emptiedAt + afterMs - performance.now()));
  const again = texts.map((text) => sayAgain(other, cookie, text));
  const saidMs = Math.round(performance.now() - emptiedAt);
  await Promise.all(again.map(hasAnswer));
  const statuses = Object.groupBy(again.map(statusOf), String);
  const counts = texts.map((text) => upstream.requests.filter((request) => textOf(request) === text).length);
  const twice = counts.filter((count) => count > 1).length;
  const told = Object.entries(statuses).map(([status, some = []]) => `${some.length} of ${status}`);
  process.stdout.write(`emptied Redis: ${JSON.stringify({ saidMs, of: STREAMS, twice, told })}\n`);
  expect(Math.max(...counts)).toBeLessThan(3);
  return twice;
}

function sayAgain({ port }: TestRelay, cookie: string, text: string): RawClient {
  const body = messageBody(messageOf(text));
  return rawClient(port, rawMessage({ cookie, body, headers: ['Connection: close'] }));
}

/** Resolves once a client has what tells whether the message was sent again: a head, or a whole refusal. */
async function hasAnswer(client: RawClient): Promise<void> {
  await client.waitFor('\r\n\r\n');
  client.socket.destroy();
}

describeWithRedis('a message that is said again at another instance while its stream is quiet', () => {
  test(`is run twice at most, and only until its name is put back, less than ${RENEWED_MS} ms after Redis was emptied`, async () => {
    // How many of them are said before that depends on when each name was renewed last.
    await runsTwice(0);
    await all.close();
    expect(await runsTwice(RENEWED_MS)).toBe(0);
  });
});
