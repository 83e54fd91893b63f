import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { bodyOf } from '../harness/clients/joining.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  areUnderWay,
  eventsOf,
  LostInstances,
  rest,
  textsOf,
  type Verdict,
  verdictOf,
} from '../harness/relay/lost-instances.ts';
import { type RelayProcess, stopProcesses } from '../harness/relay/process.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';

jest.setTimeout(3_600_000);

/** How often an instance is lost, each time while it carries these messages. */
const kills = Number(process.env.KILLS ?? 201);
const MESSAGES = 8;
const PAUSED_MS = 10_000;
/** Some pauses are shorter than a lease, and some are longer, in ms. */
const aPause = () => sleep(1_000 + Math.random() * 8_000);

let instances: LostInstances;
afterEach(async () => {
  await stopProcesses();
  await instances.close();
});

/** The ways in which an instance is lost; each resolves when it is back, if it comes back. */
const WAYS: Readonly<Record<string, (holder: RelayProcess) => Promise<unknown>>> = {
  async 'kill -9'(holder) {
    holder.signal('SIGKILL');
  },
  async SIGTERM(holder) {
    holder.signal('SIGTERM');
  },
  async SIGSTOP(holder) {
    holder.signal('SIGSTOP');
    await aPause();
    holder.signal('SIGCONT');
  },
  async 'Redis paused'() {
    instances.all.redis.pause();
    await aPause();
    instances.all.redis.resume();
  },
};

type Counts = Partial<Record<Verdict, number>>;
/** What clients have got: those of the lost instance, and those that came again, by whether they had seen an id. */
interface Seen {
  readonly own: Counts;
  readonly again: Counts;
  readonly againAfterId: Counts;
  readonly againAfterRefusal: Counts;
  readonly withId: Counts;
}

const nothingSeen = (): Seen => ({ own: {}, again: {}, againAfterId: {}, againAfterRefusal: {}, withId: {} });

/** A message whose instance is lost: its own client, and one that says it again elsewhere, without and with an id. */
async function sayAgain(text: string, own: RawClient, seen: Seen): Promise<void> {
  const whole = eventsOf(text).join('');
  const count = async (counts: Counts, client: RawClient, expected: string) => {
    const verdict = await verdictOf(client, expected);
    if (verdict === 'wrong') throw new Error(`${text}: ${client.text()}`);
    counts[verdict] = (counts[verdict] ?? 0) + 1;
    return verdict;
  };
  const id = [...own.text().matchAll(/^id: (\d)\r?$/gm)].at(-1)?.[1];
  const again = await instances.sayUntilTaken(() => instances.say(text));
  const got = await count(id === undefined ? seen.again : seen.againAfterId, again, whole);
  if (id !== undefined) {
    const resumed = await instances.sayUntilTaken(() => instances.say(text, [`Last-Event-ID: ${id}`]));
    expect(await count(seen.withId, resumed, rest(text, id).join(''))).toBe('whole');
  }
  // What has not run at the one runs at the other.
  const ownGot = await count(seen.own, own, whole);
  if (ownGot === 'refused') seen.againAfterRefusal[got] = (seen.againAfterRefusal[got] ?? 0) + 1;
}

async function loseOne(way: string, round: string, isFirst: boolean, seen: Seen): Promise<void> {
  const { holder, port } = await instances.startHolder();
  const texts = textsOf(round, MESSAGES);
  let lost: readonly RawClient[];
  // The first moment leaves answers of both kinds; the others may come before any message has arrived.
  if (isFirst) {
    lost = await Promise.all(texts.map((text) => instances.sayUntilTaken(() => instances.sayAt(port, text))));
    await until(() => areUnderWay(lost));
  } else {
    lost = texts.map((text) => instances.sayAt(port, text));
    await sleep(Math.random() * 900);
  }
  const back = WAYS[way]?.(holder);
  await Promise.all(texts.map((text, n) => sayAgain(text, lost[n] as RawClient, seen)));
  await back;
  instances.expectOneRunEach();
  holder.signal('SIGKILL');
  await holder.exited;
}

describeWithRedis('instances that are lost', () => {
  test(`at ${kills} random moments leave whole answers or truthful ends, and no second run`, async () => {
    instances = await LostInstances.start();
    const ways = Object.keys(WAYS);
    const seen = Object.fromEntries(ways.map((way) => [way, nothingSeen()]));
    const lose = (way: string, round: number) =>
      loseOne(way, `${round}-${ways.indexOf(way)}`, round === 0, seen[way] as Seen);
    let lost = 0;
    try {
      for (; lost < kills; lost += ways.length) {
        // All instances have the same Redis.
        await Promise.all(ways.filter((way) => way !== 'Redis paused').map((way) => lose(way, lost)));
        await lose('Redis paused', lost);
      }
    } finally {
      process.stdout.write(
        `lost instances: ${JSON.stringify({ lost, refusals: instances.refusals, ...seen })}\n`,
      );
    }
    const { refusals } = instances;
    // One refusal of each message for each second without Redis is no fault; more would be an outage.
    expect(refusals).toBeLessThan(kills * MESSAGES * 10);
    for (const way of ways) expect(seen[way]?.withId.whole).toBeGreaterThan(0);
    expect(seen['kill -9']?.againAfterId.told).toBeGreaterThan(0);
  });

  test('for ten seconds, by SIGSTOP, and back: no second run, no reader with a hole', async () => {
    instances = await LostInstances.start();
    const { all } = instances;
    const { holder, port } = await instances.startHolder();
    const texts = textsOf('stop', MESSAGES);
    const readers = texts.map((text) => instances.sayUntilTaken(() => instances.sayAt(port, text)));
    await until(() => all.upstream.requests.length === MESSAGES);
    await sleep(Math.random() * 500);
    readers.push(...texts.map((text) => instances.sayUntilTaken(() => instances.say(text))));
    holder.signal('SIGSTOP');
    await sleep(PAUSED_MS);
    holder.signal('SIGCONT');
    for (const [n, reader] of readers.entries()) {
      const whole = eventsOf(texts[n % MESSAGES] as string).join('');
      expect(['whole', 'told']).toContain(await verdictOf(await reader, whole));
    }
    instances.expectOneRunEach();
  });
});

describeWithRedis('Redis away for ten seconds', () => {
  test('starts no second run, and leaves no reader with a hole', async () => {
    instances = await LostInstances.start();
    const { all } = instances;
    const { port } = await instances.startHolder();
    const texts = textsOf('away', MESSAGES);
    const carried = await Promise.all(
      texts.map((text) => instances.sayUntilTaken(() => instances.sayAt(port, text))),
    );
    expect(all.upstream.requests).toHaveLength(MESSAGES);
    const others = await Promise.all(texts.map((text) => instances.sayUntilTaken(() => instances.say(text))));
    // Who comes while Redis is away is refused, as the one below.
    await Promise.all(others.map((other) => other.waitFor('run.init')));
    await sleep(Math.random() * 500);
    all.redis.pause();
    await sleep(PAUSED_MS / 2);
    expect(await bodyOf(instances.say('refused'))).toContain('session_store_unavailable');
    await sleep(PAUSED_MS / 2);
    all.redis.resume();
    for (const [n, text] of texts.entries()) {
      const whole = eventsOf(text).join('');
      expect(await bodyOf(carried[n] as RawClient)).toBe(whole);
      expect(['whole', 'told']).toContain(await verdictOf(others[n] as RawClient, whole));
    }
    instances.expectOneRunEach();
  });
});
