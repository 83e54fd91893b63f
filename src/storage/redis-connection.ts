import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../logger.ts';
import { causeOf, errorWith, withDeadline } from './redis-errors.ts';
import type { OpenLink, RedisLink } from './redis-link.ts';

const FIRST_DELAY_MS = 50;
const MAX_DELAY_MS = 500;
/** A link that lasted for less counts as a failure, in ms. */
const SHORT_MS = 1_000;
const PING_MS = 1_000;

/** A channel, and its listener. */
export interface Subscription {
  readonly channel: string;
  readonly listener: (message: string) => void;
  /** Called each time the subscription begins. */
  readonly onListening: () => void;
}

/** The links to Redis, one after the other. */
export interface RedisConnection {
  /** Undefined while there is none. */
  readonly link: RedisLink | undefined;
  /** Why the last link was lost or not made. A command without a link cannot know this. */
  readonly lastCause: string;
  /** When all processes have noticed that Redis last came back, by `performance.now()` in ms. */
  readonly backAt: number | undefined;
  /** Resolves when there is a first link. */
  readonly ready: Promise<void>;
  subscribe(subscription: Subscription): void;
  /** The present link is of no use; makes a new one. */
  drop(error: unknown): void;
  close(): void;
}

export interface ConnectionOptions {
  readonly open: OpenLink;
  readonly logger: Logger;
  /** How long a server may leave a ping unanswered, in ms. */
  readonly silentMs: number;
}

interface ConnectionState extends ConnectionOptions {
  readonly subscriptions: Subscription[];
  readonly firstReady: PromiseWithResolvers<void>;
  link: RedisLink | undefined;
  /** Ends the present link, or the attempt to make one. */
  end: (error: unknown) => void;
  lastCause: string;
  backAt: number | undefined;
  isLost: boolean;
  isClosed: boolean;
  /** Ends the wait for the next attempt. */
  readonly closing: AbortController;
}

/**
 * Connects in the background, and again whenever the link is lost, until `close`. Logs one line when Redis is lost and
 * one when it is back, and none for the attempts in between.
 */
export function keepConnected(options: ConnectionOptions): RedisConnection {
  const firstReady = Promise.withResolvers<void>();
  const state: ConnectionState = {
    ...{ ...options, subscriptions: [], firstReady, link: undefined, end: () => {} },
    ...{ lastCause: 'CONNECTING', backAt: undefined, isLost: false, isClosed: false },
    closing: new AbortController(),
  };
  void connect(state);
  return {
    get link() {
      return state.link;
    },
    get lastCause() {
      return state.lastCause;
    },
    get backAt() {
      return state.backAt;
    },
    ready: firstReady.promise,
    subscribe(subscription) {
      state.subscriptions.push(subscription);
      if (state.link) void listenNow(state.link, subscription);
    },
    drop: (error) => state.end(error),
    close() {
      state.isClosed = true;
      state.closing.abort();
      state.end(errorWith('CLOSED', 'The connection was closed'));
    },
  };
}

async function connect(state: ConnectionState): Promise<void> {
  const { signal } = state.closing;
  for (let failures = 0; !state.isClosed; failures += 1) {
    const beganAt = await linkUntilLost(state);
    if (performance.now() - beganAt > SHORT_MS) failures = 0;
    const delay = failures === 0 ? 0 : FIRST_DELAY_MS * 2 ** (failures - 1);
    await sleep(Math.min(delay, MAX_DELAY_MS), undefined, { signal }).catch(() => {});
  }
}

/** Makes a link. Resolves when it is lost, with when it began; or when it could not be made. */
async function linkUntilLost(state: ConnectionState): Promise<number> {
  const ending = new AbortController();
  const over = Promise.withResolvers<void>();
  let opened: RedisLink | undefined;
  let beganAt = Number.POSITIVE_INFINITY;
  let isOver = false;
  state.end = (error) => {
    if (isOver) return;
    isOver = true;
    state.link = undefined;
    noteLoss(state, error);
    // Closed now, so that commands under way can't reach Redis any more.
    opened?.close();
    // This also ends an attempt to connect.
    ending.abort();
    over.resolve();
  };
  try {
    opened = await state.open(state.end, ending.signal);
    // Subscriptions begin before Redis counts as ready, so that no message is lost after that.
    const begun = await Promise.all(state.subscriptions.map((one) => listen(opened as RedisLink, one)));
    if (isOver) opened.close();
    else {
      begin(state, opened, begun);
      beganAt = performance.now();
      void endWhenSilent(opened, state, ending.signal);
    }
  } catch (error) {
    state.end(error);
  }
  await over.promise;
  return beganAt;
}

/**
 * Ends the link when a server leaves a ping unanswered. The socket's own time-out does not notice that while commands
 * are written: to write counts as activity.
 */
async function endWhenSilent(
  link: RedisLink,
  { end, silentMs }: Pick<ConnectionState, 'end' | 'silentMs'>,
  signal: AbortSignal,
): Promise<void> {
  try {
    for (;;) {
      await sleep(PING_MS, undefined, { ref: false, signal });
      await withDeadline(Promise.all(link.servers().map((server) => server.ping())), silentMs);
    }
  } catch (error) {
    end(error);
  }
}

function noteLoss(state: ConnectionState, error: unknown): void {
  state.lastCause = causeOf(error);
  if (!state.isLost && !state.isClosed) state.logger.error({ cause: state.lastCause }, 'redis lost');
  state.isLost = true;
}

function begin(state: ConnectionState, link: RedisLink, begun: readonly boolean[]): void {
  state.link = link;
  state.logger.info('redis ready');
  if (state.isLost) state.backAt = performance.now() + (link.noticedMs ?? 0);
  state.isLost = false;
  state.firstReady.resolve();
  for (const [n, subscription] of state.subscriptions.entries()) {
    if (begun[n]) subscription.onListening();
    // This one was added while the others began.
    else if (n >= begun.length) void listenNow(link, subscription);
  }
}

async function listenNow(link: RedisLink, subscription: Subscription): Promise<void> {
  if (await listen(link, subscription)) subscription.onListening();
}

/** Whether the subscription has begun; if not, it does with the next link. */
async function listen(link: RedisLink, { channel, listener }: Subscription): Promise<boolean> {
  try {
    const [server] = link.servers();
    await server?.subscribe(channel, listener);
    return true;
  } catch {
    return false;
  }
}
