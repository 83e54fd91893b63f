import { heldBytes } from '../relay/message/held-bytes.ts';
import type { Redis } from '../storage/redis.ts';
import type { CarriedRun, Run } from './run.ts';
import { type RunCodec, type RunSealers, runCodec } from './run-codec.ts';
import { RunFollower } from './run-follower.ts';
import { APPEND, CLAIM, CONFIRM, FIND, FORGET, NEWEST, NEWS, namesKey, READ, STOP } from './run-lua.ts';
import type { RunName } from './run-name.ts';
import { RunNews } from './run-news.ts';
import {
  type Confirmation,
  type Confirmed,
  type KnownRun,
  knownMs,
  type NewestRun,
  RUN_LEASES,
  type RunLeases,
  type RunStore,
  type RunTimes,
} from './run-store.ts';
import { RunWriter } from './run-writer.ts';

export interface RedisRunStoreOptions {
  readonly times: RunTimes;
  /** How many bytes of a run are stored. */
  readonly maxBytes: number;
  /** Replaces some of the store's own times. */
  readonly leases?: Partial<RunLeases>;
}

/** How many bytes of runs that have ended may wait to be stored. */
const WAITING_BYTES = 64 << 20;
/** Above this part of Redis's memory, no log is stored. */
const FULL = 0.8;
const MEMORY_EVERY_MS = 1_000;

/** Names, logs and stops in Redis, for all instances. All times are by Redis's clock. */
export function redisRunStore(redis: Redis, sealers: RunSealers, options: RedisRunStoreOptions): RunStore {
  const { times, maxBytes } = options;
  const leases = { ...RUN_LEASES, ...options.leases };
  const codec = runCodec(sealers);
  const news = new RunNews();
  const writers = new Set<RunWriter>();
  const followers = new Map<Run, RunFollower>();
  const following = { read: redis.script(READ), codec, leases, news };
  const writing = {
    ...{ append: redis.script(APPEND), codec, times, leases, news, maxBytes },
    ...{ waiting: heldBytes(WAITING_BYTES), isRedisFull: memoryWatch(redis) },
  };
  const stop = redis.script(STOP);
  const forget = redis.script(FORGET);

  function carry(run: Run): CarriedRun {
    if (!run.name) throw new Error('a run without a name is not carried');
    const writer = new RunWriter(run, run.name, writing);
    writers.add(writer);
    void writer.writeUntilEnd().then(() => writers.delete(writer));
    return writer;
  }

  function follow(run: Run): Promise<void> {
    if (!run.name) throw new Error('a run without a name is not followed');
    const follower = followers.get(run) ?? new RunFollower(run, run.name, following);
    const caughtUp = follower.catchUp();
    if (!followers.has(run)) {
      followers.set(run, follower);
      void follower.readUntilEnd().then(() => followers.delete(run));
    }
    return caughtUp;
  }

  return {
    ...nameCalls(redis, codec, { times, leases }),
    ...{ carry, follow },
    // A stop is known for as long as a message can wait.
    stop: async (conversation) =>
      Number(await stop([namesKey(conversation)], [...NO_RUN, String(times.maxWaitMs)])),
    async forget(conversation) {
      await forget([namesKey(conversation)], NO_RUN);
    },
    listen(stopped) {
      const onNews = (text: string) =>
        text.startsWith('stop ') ? stopped(text.slice('stop '.length)) : news.wake(text);
      // Called after each reconnect: until then, news may have been lost, and Redis may have lost names.
      void redis.subscribe(NEWS, onNews, () => news.wakeAll());
    },
    isShared: true,
    async close() {
      await Promise.all([...writers].map((writer) => writer.askForReaders()));
    },
  };
}

/** The arguments of a script that is about no run. */
const NO_RUN = ['', '', '', ''];

type NameReply = [state: string, id?: string, request?: string, key?: string];

/** The calls that concern names alone. */
function nameCalls(
  redis: Redis,
  codec: RunCodec,
  { times, leases }: { readonly times: RunTimes; readonly leases: RunLeases },
): Pick<RunStore, 'claim' | 'find' | 'newest' | 'confirm'> {
  const claim = redis.script(CLAIM);
  const find = redis.script(FIND);
  const newest = redis.script(NEWEST);
  const confirm = redis.script(CONFIRM);
  const lease = String(leases.leaseMs);
  const textsOf = ({ key, message = '' }: RunName) => [key, message];
  function opened(id = '', request = '') {
    const requestId = codec.openRequest(request, id) ?? '';
    // The keys of the run are made again if it is read.
    codec.forget(id);
    return { id, requestId };
  }
  function known(reply: unknown): KnownRun {
    const [state, id, request] = reply as NameReply;
    if (state === 'live' || state === 'kept') return { state, ...opened(id, request) };
    return { state: state as 'free' | 'claimed' | 'over' };
  }
  return {
    async claim(name, { id, requestId }) {
      const own = [id, codec.sealRequest(requestId, id), String(knownMs(times, false)), lease];
      const found = known(await claim([namesKey(name.conversation)], [...textsOf(name), ...own]));
      if (found.state !== 'claimed') codec.forget(id);
      return found;
    },
    async find(name) {
      return known(await find([namesKey(name.conversation)], [...textsOf(name), '', '']));
    },
    async newest({ conversation, message }): Promise<NewestRun> {
      const reply = (await newest([namesKey(conversation)], ['', message, '', ''])) as NameReply;
      const found = known(reply);
      const [, , , key = ''] = reply;
      return found.state === 'live' || found.state === 'kept' ? { ...found, key } : { state: 'over' };
    },
    async confirm({ id, name, conversation, waitsSince }: Confirmation): Promise<Confirmed> {
      const of = conversation ?? name?.conversation;
      if (of === undefined) return 'confirmed';
      const waited = conversation === undefined ? '' : String(Math.ceil(performance.now() - waitsSince));
      const own = name ? [...textsOf(name), id, ''] : ['', '', id, ''];
      const ms = String(knownMs(times, name?.outlivesRun === true));
      const [state, other, request] = (await confirm(
        [namesKey(of)],
        [...own, ms, lease, waited],
      )) as NameReply;
      if (state !== 'other') return state as 'confirmed' | 'stopped';
      return { other: opened(other, request) };
    },
  };
}

/** Tells whether Redis has little memory left; asks it at most every `MEMORY_EVERY_MS`. */
function memoryWatch(redis: Redis): () => Promise<boolean> {
  let askedAt = Number.NEGATIVE_INFINITY;
  let isFull = false;
  return async () => {
    if (performance.now() - askedAt < MEMORY_EVERY_MS) return isFull;
    askedAt = performance.now();
    // Without an answer, nothing can be stored.
    const all = await redis.onEach((server) => server.info('memory')).catch(() => []);
    isFull = all.some((info) => {
      const bytesOf = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0);
      const most = bytesOf('maxmemory');
      return most > 0 && bytesOf('used_memory') > FULL * most;
    });
    return isFull;
  };
}
