import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { INIT, statusOf } from '../harness/clients/joining.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  type JoinInstances,
  messageOf,
  runsOf,
  startJoinInstances,
} from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';

jest.setTimeout(600_000);

const STREAMS = 24;
/** So long after Redis was emptied, each run has put its name back: it renews it each second. */
const RENEWED_MS = 1_500;

let all: JoinInstances;
afterEach(() => all.close());

/** Opens quiet streams at one instance, empties Redis, and says the messages again at the other, so much later. */
async function runsTwice(afterMs: number): Promise<number> {
  all = await startJoinInstances(2, {}, () => [INIT]);
  const messages = Array.from({ length: STREAMS }, (_, n) => messageOf(`quiet-${n}`));
  const own = messages.map((message) => all.say(0, message));
  await Promise.all(own.map((client) => client.waitFor('run.init')));
  await all.redis.command('FLUSHALL');
  const emptiedAt = performance.now();
  // Its sessions are gone, too.
  const cookie = await (all.relays[1] as TestRelay).signIn();
  await sleep(Math.max(0, emptiedAt + afterMs - performance.now()));
  const again = messages.map((message) => all.sayAs(cookie, 1, message));
  const saidMs = Math.round(performance.now() - emptiedAt);
  // A head, or a whole refusal, tells whether the message was sent again.
  await Promise.all(again.map((client) => client.waitFor('\r\n\r\n')));
  const counts = [...runsOf(all).values()];
  const twice = counts.filter((count) => count > 1).length;
  const told = again.map(statusOf).sort().join(' ');
  process.stdout.write(`emptied Redis: ${JSON.stringify({ saidMs, of: STREAMS, twice, told })}\n`);
  expect(Math.max(...counts)).toBeLessThan(3);
  return twice;
}

describeWithRedis('a message that is said again at another instance while its stream is quiet', () => {
  test(`is run twice at most, and only until its name is put back, less than ${RENEWED_MS} ms after Redis was emptied`, async () => {
    // How many of them are said before that depends on when each name was renewed last.
    await runsTwice(0);
    await all.close();
    expect(await runsTwice(RENEWED_MS)).toBe(0);
  });
});
