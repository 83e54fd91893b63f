import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { redisRunStore } from '../../src/runs/redis-run-store.ts';
import { runName } from '../../src/runs/run-name.ts';
import { bodyOf, DONE, INIT, problemOf, statusOf } from '../harness/clients/joining.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { connected, describeWithRedis } from '../harness/redis/redis.ts';
import {
  endOf,
  expectOneRunEach,
  type JoinInstances,
  messageOf,
  startJoinInstances,
  textOf,
} from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { runSealer } from '../harness/relay/run-sealer.ts';
import { end, sentRun } from '../harness/runs/carried-run.ts';
import { TIMES } from '../harness/runs/run-stores.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

jest.setTimeout(3_600_000);

/** `NAMES` sets another number, such as a million. */
const NAMES = Number(process.env.NAMES ?? 100_000);
const AT_ONCE = 500;
const STREAMS = 24;
/** What Redis may take besides the names before it stores no more logs, in bytes: less than the streams have. */
const ROOM = 4 << 20;
const FULL = 0.8;
/** What is stored of an ended run besides its name goes after so long, in ms. */
const ENDS_GO_MS = 11_000;
/** Longer than the lease of a run that can't be renewed, in ms. */
const LAPSED_MS = 7_000;
const LARGE = Array.from({ length: 110 }, (_, n) => `data: {"n":${n},"x":"${'x'.repeat(8_000)}"}\n\n`);

let all: JoinInstances;
afterEach(() => all.close());

/** A large answer takes some seconds, a quiet one goes on until it is told, and others are short. */
async function answer(socket: Socket, text: string): Promise<void> {
  socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(INIT)]));
  if (text.startsWith('quiet')) return;
  for (const event of text.startsWith('large') ? LARGE : []) {
    await sleep(50);
    if (socket.destroyed) return;
    socket.write(chunk(event));
  }
  socket.write(Buffer.concat([chunk(DONE), Buffer.from(LAST_CHUNK)]));
}

async function usedBytes(): Promise<number> {
  const info = String(await all.redis.command('INFO', 'memory'));
  return Number(/^used_memory:(\d+)/m.exec(info)?.[1]);
}

const bound = (bytes: number) => all.redis.command('CONFIG', 'SET', 'maxmemory', String(Math.ceil(bytes)));

/** Remembers the names of messages that have run, each in a conversation of its own. Returns the bytes of one. */
async function fill(): Promise<number> {
  const before = await usedBytes();
  const redis = await connected(all.redis.url);
  const times = { ...TIMES, keepMs: 0, rememberMs: 3_600_000 };
  const store = redisRunStore(redis, runSealer, { times, maxBytes: 1 << 20 });
  for (let from = 0; from < NAMES; from += AT_ONCE) {
    await Promise.all(
      Array.from({ length: AT_ONCE }, async (_, n) => {
        const value = { ...messageOf(`name-${from + n}`), action: 'NONE' };
        const bytes = Buffer.from(JSON.stringify(value));
        const place = { bot: 'acme/helper', channel: value.text, user: 'ada' };
        const run = await sentRun(store, runName({ ...place, query: '', headers: {}, value, bytes }));
        await end(run);
      }),
    );
  }
  redis.close();
  await sleep(ENDS_GO_MS);
  return ((await usedBytes()) - before) / NAMES;
}

const isTold = (code: string | undefined) =>
  code !== undefined && ['run_not_kept', 'reader_too_slow', 'answer_lost', 'run_over'].includes(code);

describeWithRedis(`a Redis with ${NAMES} names and little memory`, () => {
  test('takes no logs where it has no room for them; users sign in and send, and nothing runs twice', async () => {
    all = await startJoinInstances(2, { JOIN_KEEP_MS: '60000' }, (request, socket) => {
      void answer(socket, textOf(request));
      return undefined;
    });
    const nameBytes = await fill();
    const filled = await usedBytes();
    const most = (filled + ROOM) / FULL;
    await bound(most);
    const texts = Array.from({ length: STREAMS }, (_, n) => `large-${n}`);
    const own = texts.map((text) => all.say(0, messageOf(text)));
    await Promise.all(own.map((client) => client.waitFor('run.init')));
    const others = texts.map((text) => all.say(1, messageOf(text)));
    for (let n = 0; n < 20; n++) {
      const cookie = await (all.relays[n % 2] as TestRelay).signIn();
      const short = all.sayAs(cookie, n % 2, messageOf(`short-${n}`));
      expect(await bodyOf(short)).toBe(INIT + DONE);
      await sleep(250);
    }
    const whole = INIT + LARGE.join('') + DONE;
    for (const client of own) expect((await bodyOf(client)) === whole).toBe(true);
    const used = await usedBytes();
    const told: Record<string, number> = {};
    for (const client of [...others, ...texts.map((text) => all.say(1, messageOf(text)))]) {
      const body = await bodyOf(client);
      const { events, code = /"code":"([a-z_]+)"/.exec(body)?.[1] } = await endOf(client);
      if (body !== whole && !isTold(code)) throw new Error(`${code}: ${body.slice(0, 1_000)}`);
      expect(body === whole || statusOf(client) === 410 || whole.startsWith(events)).toBe(true);
      const key = body === whole ? 'whole' : String(code);
      told[key] = (told[key] ?? 0) + 1;
    }
    process.stdout.write(
      `full Redis: ${JSON.stringify({ names: NAMES, nameBytes, filled, most, used, told })}\n`,
    );
    expect(used).toBeLessThan(most);
    expect(2 * STREAMS - (told.whole ?? 0)).toBeGreaterThan(0);
    expectOneRunEach(all);
    await untilNothingFits();
  });
});

/** Without any memory, what goes on goes on, nothing new is sent, and what was sent is not sent again. */
async function untilNothingFits(): Promise<void> {
  const quiet = all.say(0, messageOf('quiet'));
  await quiet.waitFor('run.init');
  const service = all.streams.at(-1) as Socket;
  await bound(1);
  const again: RawClient[] = [];
  for (let waitedMs = 0; waitedMs < LAPSED_MS; waitedMs += 1_000) {
    const refused = all.say(0, messageOf(`new-${waitedMs}`));
    expect(await problemOf(refused)).toMatchObject({ code: 'session_store_unavailable' });
    again.push(all.say(1, messageOf('quiet')));
    await sleep(1_000);
  }
  await bound(0);
  service.write(Buffer.concat([chunk(DONE), Buffer.from(LAST_CHUNK)]));
  expect(await bodyOf(quiet)).toBe(INIT + DONE);
  for (const client of [...again, all.say(1, messageOf('quiet'))]) {
    const body = await bodyOf(client);
    const code = /"code":"([a-z_]+)"/.exec(body)?.[1];
    if (body !== INIT + DONE && code !== 'session_store_unavailable' && !isTold(code)) throw new Error(body);
  }
  expectOneRunEach(all);
  expect(all.upstream.requests.map(textOf).filter((text) => text.startsWith('new'))).toEqual([]);
  expect(await bodyOf(all.say(1, messageOf('after')))).toBe(INIT + DONE);
}
