import type { Socket } from 'node:net';
import { expect } from '@jest/globals';
import { ENDED, MARK_MS, USER_PREFIX } from '../../../src/authenticate/sessions/session-script.ts';
import { bodyOf, DELTA, DONE, EVENTS, INIT, KEPT, messageBody, statusOf, WHOLE } from '../clients/joining.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../clients/raw-client.ts';
import { sleep } from '../clock/sleep.ts';
import { until } from '../clock/until.ts';
import type { RedisServer } from '../redis/redis.ts';
import { chunk, LAST_CHUNK } from '../service/raw-upstream.ts';
import type { MeasuredInstance } from './measured-instances.ts';
import { BOT_PATH } from './relay.ts';

/** A message of its own conversation, two instances that may get it, and the bot service's end of its stream. */
export interface EndingMessage {
  readonly id: string;
  readonly cookie: string;
  /** A user who has no session. */
  readonly user: string;
  /** The one that carries its run, and the one that others ask. Both stay. */
  readonly carrier: MeasuredInstance;
  readonly other: MeasuredInstance;
  readonly redis: RedisServer;
  /** The newest stream of its run at the bot service. */
  stream(): Socket | undefined;
  /** Resolves when all messages of this round that wait for the same have come here, and the instance is gone. */
  readonly lost: { readonly killed: () => Promise<void>; readonly drained: () => Promise<void> };
  /** The instance that is lost in that way. */
  readonly mortal: { readonly killed: MeasuredInstance; readonly drained: MeasuredInstance };
}

const ERROR = DONE.replace('run.done', 'run.error');
/** More than is held until it is whole. */
const HALF = `data: ${'x'.repeat(70_000)}`;
/** More than is kept of a run. */
const LARGE = Array.from({ length: 8 }, (_, n) => `data: {"n":${n},"x":"${'x'.repeat(32_700)}"}\n\n`);

function textOf(message: EndingMessage, ending: string): string {
  const { id: customMessageId } = message;
  return messageBody({ text: ending, customChannelId: customMessageId, customMessageId });
}

/** What can be done with the message of one ending. */
function acts(message: EndingMessage, ending: string) {
  const { cookie, carrier, other } = message;
  const clients: RawClient[] = [];
  const sayAs =
    (as: string) =>
    ({ port }: MeasuredInstance, headers: readonly string[] = [], path = BOT_PATH) => {
      const body = textOf(message, ending);
      const text = rawMessage({ cookie: as, body, path, headers: ['Connection: close', ...headers] });
      const client = rawClient(port, text);
      clients.push(client);
      return client;
    };
  const say = sayAs(cookie);
  return {
    ...{ say, sayAs, clients },
    /** A session of the user of this message. It ends with `signOut`. */
    signIn: () => carrier.signIn(message.user),
    signOut: (as: string) => until(async () => (await other.post('/auth/logout', as)).status !== 503, 200),
    /** A client where the run is carried, and one elsewhere, who have both got this. */
    async both(begins: readonly string[], at = carrier): Promise<readonly [RawClient, RawClient]> {
      const first = say(at);
      await got(first, begins.join(''));
      const second = say(other);
      await got(second, begins.join(''));
      return [first, second];
    },
    emit: (...events: readonly string[]) =>
      void message.stream()?.write(Buffer.concat(events.map((event) => chunk(event)))),
    finish: () => void message.stream()?.end(LAST_CHUNK),
    async cut() {
      await until(() => message.stream() !== undefined);
      message.stream()?.destroy();
    },
    suspend: () =>
      other.post(
        `${BOT_PATH.replace('message/sse', 'message/suspend').replace('helper', botOf(ending))}?custom_channel_id=${message.id}`,
        cookie,
      ),
  };
}

type Acts = ReturnType<typeof acts>;

const botOf = (ending: string) => (ending === 'stopped' ? 'slow' : 'helper');

/** An instance has told a client that Redis is away: on a busy machine, its answers take too long. */
export class RedisAway extends Error {}

function expectRedis(client: RawClient): void {
  if (/^HTTP\/1.1 503 [\s\S]*"code":"session_store_unavailable"/.test(client.text())) throw new RedisAway();
}

/** The client has got this body so far; fails if its answer has ended otherwise. */
async function got(client: RawClient, body: string): Promise<void> {
  const hasGot = () => dechunk(client.text()).body === body;
  await until(() => client.socket.destroyed || hasGot(), 20);
  expectRedis(client);
  expect(hasGot() ? body : client.text()).toBe(body);
}

/** The clients have all got this whole body. */
async function expectBodies(clients: readonly RawClient[], body: string): Promise<void> {
  for (const client of clients) {
    const whole = await bodyOf(client);
    expectRedis(client);
    expect(whole).toBe(body);
  }
}

/** The clients have all got these events, and then a problem of this code. */
async function expectCode(clients: readonly RawClient[], events: string, code: string): Promise<void> {
  for (const client of clients) {
    const [before = '', error] = (await bodyOf(client)).split('event: error');
    // What is refused before its message has left has a status.
    const isRefused = ['unauthenticated', 'run_not_kept'].includes(code);
    expect(client.text().startsWith('HTTP/1.1 200 ')).toBe(!isRefused);
    expectRedis(client);
    const found = /"code":"([a-z_]+)"/.exec(error ?? before)?.[1] ?? client.text();
    expect([error === undefined ? '' : before, found]).toEqual([events, code]);
  }
}

/** What the bot service begins the stream of each ending with; undefined if it answers in another way. */
export const BEGINS: Readonly<Record<string, readonly string[] | undefined>> = {
  whole: [INIT, DELTA],
  'short id': [INIT],
  'service error': [INIT],
  'broken before an event': [],
  broken: [INIT],
  left: [INIT],
  'left early': [],
  suspended: [INIT],
  'logged out': [INIT],
  'refused joiner': [INIT],
  'too large': [INIT, HALF],
  trimmed: [INIT],
  resumed: [INIT, DELTA, KEPT],
  'killed with ids': [INIT, DELTA, KEPT],
  'killed without ids': [INIT, DELTA],
  'drained with ids': [INIT, DELTA, KEPT],
  'drained without ids': [INIT, DELTA],
};

type Run = (act: Acts, message: EndingMessage) => Promise<void>;

/** Every way in which a run ends. Each of them expects what its clients get. */
const ENDINGS: Readonly<Record<string, Run>> = {
  async whole({ both, emit, finish }) {
    const clients = await both([INIT, DELTA]);
    emit(...EVENTS.slice(2));
    finish();
    await expectBodies(clients, WHOLE);
  },

  async 'short id'({ both, emit, finish }) {
    const clients = await both([INIT]);
    emit(DONE);
    finish();
    await expectBodies(clients, INIT + DONE);
  },

  async 'service error'({ both, emit, finish }) {
    const clients = await both([INIT]);
    emit(ERROR);
    finish();
    await expectBodies(clients, INIT + ERROR);
  },

  async refused({ say }, { carrier, other }) {
    const clients = [say(carrier), say(other)];
    await expectCode(clients, '', 'upstream_refused');
  },

  async failed({ say }, { carrier, other }) {
    await expectCode([say(carrier), say(other)], '', 'upstream_bad_response');
  },

  async 'broken before an answer'({ say }, { carrier, other }) {
    await expectCode([say(carrier), say(other)], '', 'upstream_unreachable');
  },

  async 'broken before an event'({ both, cut }) {
    const clients = await both([]);
    await Promise.all(clients.map((client) => client.waitFor('\r\n\r\n')));
    for (const client of clients) expectRedis(client);
    await cut();
    await expectCode(clients, '', 'upstream_stream_broken');
  },

  async broken({ both, cut }) {
    const clients = await both([INIT]);
    await cut();
    await expectCode(clients, INIT, 'upstream_stream_broken');
  },

  async left({ both }) {
    for (const { socket } of await both([INIT])) socket.destroy();
  },

  async 'left early'({ say }, { carrier, other }) {
    for (const at of [carrier, other]) {
      const client = say(at);
      client.socket.end();
      await client.closed;
    }
  },

  async suspended({ both, suspend }) {
    const clients = await both([INIT]);
    const { status } = await suspend();
    if (status === 503) throw new RedisAway();
    expect(status).toBe(200);
    await expectBodies(clients, INIT + DONE);
  },

  async stopped({ say, suspend }, { carrier, other }) {
    const path = BOT_PATH.replace('helper', botOf('stopped'));
    const clients = [carrier, other].map((at) => say(at, [], path));
    // One may come while the first is stopped already.
    for (; !clients.every(({ socket }) => socket.destroyed); await sleep(200)) await suspend();
    await expectCode(clients, '', 'stopped');
  },

  async 'logged out'({ sayAs, signIn, signOut }, { carrier, other }) {
    const cookie = await signIn();
    const clients: RawClient[] = [];
    try {
      for (const at of [carrier, other]) {
        const client = sayAs(cookie)(at);
        await got(client, INIT);
        clients.push(client);
      }
    } finally {
      await signOut(cookie);
    }
    await expectCode(clients, INIT, 'session_ended');
  },

  async 'refused joiner'({ sayAs, signIn, signOut, emit, finish }, { user, carrier, other, redis }) {
    const old = await signIn();
    const markedAt = Date.now();
    await redis.command('ZADD', USER_PREFIX + user, String(markedAt + MARK_MS), ENDED);
    await until(() => Date.now() > markedAt);
    const fresh = await signIn();
    try {
      const own = sayAs(fresh)(carrier);
      await got(own, INIT);
      const refused = sayAs(old)(other);
      await expectCode([refused], '', 'unauthenticated');
      expect(statusOf(refused)).toBe(401);
      emit(DONE);
      finish();
      await expectBodies([own], INIT + DONE);
    } finally {
      for (const cookie of [old, fresh]) await signOut(cookie);
      await redis.command('ZREM', USER_PREFIX + user, ENDED);
    }
  },

  async 'too large'({ both, cut }) {
    const clients = await both([INIT, HALF]);
    await cut();
    for (const client of clients) {
      await client.closed;
      expect(dechunk(client.text())).toMatchObject({ body: INIT + HALF, complete: false });
    }
  },

  async trimmed({ both, say, emit, finish }, { carrier, other }) {
    const clients = await both([INIT]);
    // Event by event: nobody shall fall behind.
    for (const [n, event] of LARGE.entries()) {
      emit(event);
      for (const client of clients) await got(client, INIT + LARGE.slice(0, n + 1).join(''));
    }
    await expectCode([say(carrier), say(other)], '', 'run_not_kept');
    emit(DONE);
    finish();
    await expectBodies(clients, INIT + LARGE.join('') + DONE);
  },

  async resumed({ both, say, emit, finish }, { other }) {
    const [own, left] = await both([INIT, DELTA, KEPT]);
    left.socket.destroy();
    const resumed = say(other, ['Last-Event-ID: 7']);
    emit(...EVENTS.slice(3));
    finish();
    await expectBodies([own], WHOLE);
    await expectBodies([resumed], EVENTS.slice(3).join(''));
  },

  async 'killed with ids'({ both, say }, { mortal, lost, other }) {
    const [, joined] = await both([INIT, DELTA, KEPT], mortal.killed);
    await lost.killed();
    await expectCode([joined], INIT + DELTA + KEPT, 'answer_lost');
    await expectBodies([say(other, ['Last-Event-ID: 7'])], EVENTS.slice(3).join(''));
  },

  async 'killed without ids'({ both }, { mortal, lost }) {
    const [, other] = await both([INIT, DELTA], mortal.killed);
    await lost.killed();
    await expectCode([other], INIT + DELTA, 'answer_lost');
  },

  async 'drained with ids'({ both, say }, { mortal, lost, other }) {
    const clients = await both([INIT, DELTA, KEPT], mortal.drained);
    await lost.drained();
    await expectCode(clients, INIT + DELTA + KEPT, 'answer_lost');
    await expectBodies([say(other, ['Last-Event-ID: 7'])], EVENTS.slice(3).join(''));
  },

  async 'drained without ids'({ both }, { mortal, lost }) {
    const clients = await both([INIT, DELTA], mortal.drained);
    await lost.drained();
    await expectCode(clients, INIT + DELTA, 'answer_lost');
  },
};

export const NAMES: readonly string[] = Object.keys(ENDINGS);

/** Ends the run of the message in this way. @throws RedisAway if that was told instead */
export async function endRun(ending: string, message: EndingMessage): Promise<void> {
  const act = acts(message, ending);
  try {
    await (ENDINGS[ending] as Run)(act, message);
  } catch (error) {
    for (const { socket } of act.clients) socket.destroy();
    throw error instanceof RedisAway ? error : new Error(`${ending}: ${error}`, { cause: error });
  }
}
