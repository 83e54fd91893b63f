import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { judgeResponse } from '../../src/relay/message/judge-response.ts';
import { sendAndJudge } from '../../src/relay/message/send-and-judge.ts';
import { bodyOf, type UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { idleLimit } from '../../src/relay/upstream/idle-limit.ts';
import { createUpstream, type SendOptions, type Upstream } from '../../src/relay/upstream/send.ts';
import { failureOf } from '../harness/clients/error-event.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { until } from '../harness/clock/until.ts';
import { startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const SMALL = ['data: a\n\n', 'data: b\n\n'];
/** So large that its end is not taken before the answer is read. */
const LARGE = ['a', 'b'].map((letter) => `data: ${letter.repeat(8192)}\n\n`);
const WHOLE = Buffer.concat([Buffer.from(STREAM_HEAD), chunk(LARGE[0] ?? ''), Buffer.from(LAST_CHUNK)]);

/** The relay's ends of its connections. */
const ends: Socket[] = [];
const onSocket = (message: unknown) => void ends.push((message as { socket: Socket }).socket);

let service: RawUpstream;
let upstream: Upstream;
/** What the service does with each request. */
let serve: (socket: Socket, body: string) => unknown;
/** How many messages have left. */
let sent = 0;
beforeEach(async () => {
  subscribe('net.client.socket', onSocket);
  service = await startRawUpstream((socket, { body }) => void serve(socket, String(body)));
  upstream = createUpstream(new URL(service.url));
  answers();
});
afterEach(async () => {
  unsubscribe('net.client.socket', onSocket);
  ends.length = 0;
  upstream.close();
  await service.close();
});

/** From now on the service answers with these bytes. */
function answers(bytes: string | Buffer = WHOLE): void {
  serve = (socket) => socket.write(bytes);
}
/** The same, with this header. */
const announces = (header: string) =>
  answers(Buffer.from(String(WHOLE).replace('\r\n\r\n', `\r\n${header}\r\n\r\n`)));
/** With this, the relay uses a connection for less than a second. */
const ONE_SECOND = 'Keep-Alive: timeout=2';

const NEVER = new AbortController().signal;
const requestOf = (text = '{}') => {
  const body = Buffer.from(text);
  return { path: '/', headers: { 'content-length': String(body.length) }, body };
};
const send = (options: Partial<SendOptions> = {}, text?: string) =>
  upstream.send(requestOf(text), {
    ...{ signal: NEVER, onDelayed: async () => {}, onSent: () => void sent++ },
    ...options,
  });
const textOf = async (answer: UpstreamAnswer) => String(Buffer.concat(await bodyOf(answer).toArray()));
const sendAndRead = async () => void (await textOf(await send()));
/** How many new connections the next message needs. */
async function newConnections(): Promise<number> {
  const before = service.sockets.length;
  await sendAndRead();
  return service.sockets.length - before;
}
async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await new Promise(setImmediate);
}

describe('an idle connection', () => {
  beforeEach(() => stopClock());

  test('is kept for the next message, for a while', async () => {
    await sendAndRead();
    pass(3_999);
    expect(await newConnections()).toBe(0);
  });

  test.each([
    ['before a service closes it after 5 s', 'X-Nothing: 1', 4_000],
    ['earlier if the service announces a shorter time', ONE_SECOND, 1_000],
    ['at once if the announced time is too short', 'Keep-Alive: timeout=1', 0],
  ])('is closed by the relay %s', async (_when, header, ms) => {
    announces(header);
    await sendAndRead();
    // undici starts the timer of an idle connection in the next turn of the event loop.
    await turns(1);
    pass(ms);
    await until(() => service.sockets[0]?.readableEnded === true);
    expect(await newConnections()).toBe(1);
  });

  /** Begins to read an answer whose end has not been taken; the returned function reads the rest. */
  async function holdBack(): Promise<() => Promise<void>> {
    const answer = await send();
    const [begun, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let isHeld = true;
    answer.read({
      data() {
        if (isHeld) answer.pause();
        begun.resolve();
      },
      end: ended.resolve,
      broken: ended.reject,
    });
    await begun.promise;
    return () => {
      isHeld = false;
      answer.resume();
      return ended.promise;
    };
  }

  test('is as much older as its answer was not read', async () => {
    announces(ONE_SECOND);
    const readRest = await holdBack();
    pass(700);
    await readRest();
    pass(500);
    expect(await newConnections()).toBe(1);
  });

  test('that is too old at once for that does not hide younger ones', async () => {
    announces('Keep-Alive: timeout=3');
    const readRest = await holdBack();
    await sendAndRead();
    pass(1000);
    await sendAndRead();
    pass(1200);
    await readRest();
    expect(await newConnections()).toBe(0);
    expect(service.sockets).toHaveLength(2);
  });

  test('is not used if a busy process writes to it when it has become too old', async () => {
    announces(ONE_SECOND);
    await sendAndRead();
    pass(600);
    let delayed = 0;
    const answer = send({ onDelayed: async () => void delayed++ });
    // The event loop comes to the message before it comes to timers that are due.
    advanceClocks({ monotonic: 600 });
    await textOf(await answer);
    expect([delayed, service.sockets.length, service.requests.length]).toEqual([1, 2, 2]);
  });

  test('is one of at most 256: those that were used last', async () => {
    const socketOf = new Map<string, Socket>();
    serve = (socket, body) => socketOf.set(body, socket);
    const all = Array.from({ length: 260 }, (_, n) => send({}, String(n)));
    await until(() => socketOf.size === 260);
    for (const [n, answer] of all.entries()) {
      socketOf.get(String(n))?.write(WHOLE);
      await textOf(await answer);
    }
    const closed = () => [...socketOf].filter(([, { destroyed }]) => destroyed).map(([n]) => Number(n));
    await until(() => closed().length >= 4);
    expect(closed().sort()).toEqual([0, 1, 2, 3]);
  });
});

describe('idle connections that the service closes early', () => {
  beforeEach(() => stopClock());
  /** Lets the service close its first connection after `ms`, and waits until the relay has seen that. */
  async function closedAfter(
    ms: number,
    close: (socket: Socket) => unknown = (socket) => socket.destroy(),
  ): Promise<void> {
    await sendAndRead();
    pass(ms);
    close(service.sockets[0] as Socket);
    await until(() => ends[0]?.closed === true);
  }

  test.each<[string, (socket: Socket) => unknown]>([
    ['ends', (socket) => void socket.end()],
    ['resets', (socket) => void socket.resetAndDestroy()],
    [
      'answers 408 on',
      (socket) => void socket.end('HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n'),
    ],
  ])('and %s are used for half of that time only', async (_how, close) => {
    await closedAfter(1600, close);
    expect(await newConnections()).toBe(1);
    pass(799);
    expect(await newConnections()).toBe(0);
    pass(800);
    expect(await newConnections()).toBe(1);
    expect(service.requests).toHaveLength(4);
  });

  test.each([
    ['ends', (socket: Socket) => void socket.push(null)],
    ['resets', (socket: Socket) => void socket.destroy(Object.assign(new Error(), { code: 'ECONNRESET' }))],
  ])('and %s as a message takes one: the message is sent on a new one', async (_how, close) => {
    await sendAndRead();
    pass(400);
    // Takes the connection; it is written to at the earliest in the next turn of the event loop.
    const answer = send();
    close(ends[0] as Socket);
    await textOf(await answer);
    expect([service.sockets.length, service.requests.length]).toEqual([2, 2]);
    pass(200);
    expect(await newConnections()).toBe(1);
  });

  test('while a message is on them, without an answer, are used for half of that time', async () => {
    await sendAndRead();
    pass(1200);
    serve = (socket) => socket.destroy();
    const failure = { code: 'upstream_unreachable', options: { maybeStarted: true } };
    await expect(send()).rejects.toMatchObject(failure);
    answers();
    expect([await newConnections(), await newConnections()]).toEqual([1, 0]);
    pass(600);
    expect(await newConnections()).toBe(1);
  });

  test('are forgotten when three later ones stay open for as long as the relay keeps them', async () => {
    announces('Keep-Alive: timeout=5');
    await closedAfter(200);
    // Each is too old when the next message comes, but stays open until its four seconds are over.
    for (let n = 0; n < 3; n++) {
      pass(150);
      expect(await newConnections()).toBe(1);
      expect(ends.at(-2)?.destroyed).toBe(n === 0);
    }
    await turns(1);
    pass(4000);
    await until(() => ends.every(({ closed }) => closed));
    await sendAndRead();
    pass(150);
    expect(await newConnections()).toBe(0);
  });

  test('say nothing about a new one, however long its message is delayed', async () => {
    await closedAfter(50);
    const answer = send({ onDelayed: async () => pass(200) });
    pass(20);
    await textOf(await answer);
    expect(service.sockets).toHaveLength(2);
  });

  test('are not those that the relay closes, nor those that close in an answer', async () => {
    await sendAndRead();
    const arrived = Promise.withResolvers<void>();
    serve = () => arrived.resolve();
    const stop = new AbortController();
    const stopped = send({ signal: stop.signal });
    await arrived.promise;
    stop.abort('stopped');
    await expect(stopped).rejects.toBe('stopped');
    answers();
    await sendAndRead();
    serve = (socket) => socket.end(STREAM_HEAD);
    await expect(send().then(textOf)).rejects.toMatchObject({ code: 'ECONNRESET' });
    answers();
    await sendAndRead();
    pass(150);
    expect(await newConnections()).toBe(0);
  });

  test('have a limit of half of the shortest time of the last 32', () => {
    const limit = idleLimit();
    for (const age of [300, ...Array<number>(31).fill(800)]) limit.ended(age, 'service');
    // Connections that the relay itself has closed after a shorter time change nothing.
    for (let n = 0; n < 3; n++) limit.ended(200, 'relay');
    expect(limit.ms()).toBe(150);
    limit.ended(800, 'service');
    expect(limit.ms()).toBe(400);
  });
});

describe('a message that is delayed', () => {
  function beBusy(): void {
    const from = performance.now();
    while (performance.now() - from < 20);
  }
  function sendDelayed(onDelayed: () => Promise<void>, signal = NEVER) {
    const answer = send({ onDelayed, signal });
    beBusy();
    return answer;
  }
  const CONNECTIONS: [string, boolean][] = [
    ['a new', false],
    ['a kept', true],
  ];

  test('is asked about, and others are not', async () => {
    let asked = 0;
    // A busy machine may delay some.
    for (let n = 0; n < 20; n++) await textOf(await send({ onDelayed: async () => void asked++ }));
    expect(asked).toBeLessThan(20);
  });

  test.each(CONNECTIONS)(
    'on %s connection sends no byte before onDelayed resolves',
    async (_what, isKept) => {
      if (isKept) await sendAndRead();
      const before = service.requests.length;
      const allowed = Promise.withResolvers<void>();
      let asked = 0;
      sent = 0;
      const delayed = sendDelayed(() => {
        asked++;
        return allowed.promise;
      });
      await until(() => asked > 0);
      await turns(20);
      expect([service.requests.length, sent]).toEqual([before, 0]);
      allowed.resolve();
      expect(await textOf(await delayed)).toBe(LARGE[0]);
      expect([asked, sent, service.sockets.length]).toEqual([1, 1, 1]);
    },
  );

  test.each(CONNECTIONS)('on %s connection leaves it to the next if it may not go', async (_what, isKept) => {
    if (isKept) await sendAndRead();
    await expect(sendDelayed(() => Promise.reject('no'))).rejects.toBe('no');
    expect(service.requests).toHaveLength(isKept ? 1 : 0);
    await sendAndRead();
    expect(service.sockets).toHaveLength(1);
  });

  test('and is stopped meanwhile gives its connection back', async () => {
    await sendAndRead();
    const stop = new AbortController();
    await expect(sendDelayed(async () => stop.abort('stopped'), stop.signal)).rejects.toBe('stopped');
    expect([service.requests.length, await newConnections()]).toEqual([1, 0]);
  });

  test('is asked about again if the connection is lost and the next one is late, too', async () => {
    let asked = 0;
    const delayed = sendDelayed(async () => {
      asked++;
      if (asked > 1) return;
      await until(() => service.sockets.length > 0);
      for (const socket of service.sockets) socket.destroy();
      await sleep(50);
      process.nextTick(beBusy);
    });
    await textOf(await delayed);
    expect([asked, service.requests.length]).toEqual([2, 1]);
  });
});

describe('a message that is stopped', () => {
  test('when the headers of its answer arrive closes its connection', async () => {
    answers(STREAM_HEAD);
    const stop = new AbortController();
    const judged = sendAndJudge(judgeResponse, {
      async send(request, options) {
        const arrived = await upstream.send(request, options);
        stop.abort('ended');
        return arrived;
      },
      ...{ onDelayed: async () => {}, onSent: () => {}, onStatus: () => {}, mask: String },
      ...{ request: requestOf(), signal: stop.signal },
    });
    await expect(judged).rejects.toBe('ended');
    await until(() => service.sockets.every(({ destroyed }) => destroyed));
  });

  test('while its connection is being opened closes that', async () => {
    // It takes the connection, and never answers the TLS handshake.
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const opened = once(server, 'connection');
    const secure = createUpstream(new URL(`https://127.0.0.1:${(server.address() as AddressInfo).port}`));
    const stop = new AbortController();
    const options = { signal: stop.signal, onDelayed: async () => {}, onSent() {} };
    const stopped = secure.send(requestOf(), options);
    const [socket] = (await opened) as [Socket];
    const closed = once(socket.resume(), 'close');
    stop.abort('left');
    await expect(stopped).rejects.toBe('left');
    await closed;
    server.close();
    secure.close();
  });

  test('before opens none', async () => {
    await expect(send({ signal: AbortSignal.abort('left') })).rejects.toBe('left');
    await sendAndRead();
    expect(service.sockets).toHaveLength(1);
  });
});

describe('an answer', () => {
  /** The system has taken the last answer, and all of it has been read that is not held back. */
  let written: Promise<void>;
  const serveAll = (events: readonly string[]) => {
    serve = (socket) => {
      written = new Promise((resolve) => socket.write(wholeStream(...events), () => resolve()));
    };
  };
  const arrived = async () => {
    await written;
    await turns(5);
  };

  test.each([
    ['small', SMALL],
    ['large', LARGE],
  ])('with %s events that is read late is whole', async (_size, events) => {
    serveAll(events);
    const late = await send();
    await arrived();
    expect(await textOf(late)).toBe(events.join(''));
  });

  test('that has arrived whole keeps its connection until it is read, and closes it if it is not', async () => {
    serveAll(SMALL);
    const [first, second] = [await send(), await send()];
    await arrived();
    expect(service.sockets).toHaveLength(2);
    first.close();
    await until(() => service.sockets[0]?.destroyed === true);
    expect(await textOf(second)).toBe(SMALL.join(''));
    expect(await newConnections()).toBe(0);
  });

  test('that is large is not read before its reader is there, nor while that pauses', async () => {
    serveAll(SMALL);
    const before = await send();
    await arrived();
    await new Promise<void>((end) => before.read({ data: before.pause, end, broken() {} }));
    serveAll(LARGE);
    const large = await send();
    await arrived();
    // This is not about the connection, which the next answer has.
    before.pause();
    before.resume();
    const seen: string[] = [];
    const over = Promise.withResolvers<void>();
    large.read({
      data(bytes) {
        seen.push(String(bytes));
        large.pause();
      },
      end: over.resolve,
      broken: over.reject,
    });
    expect(seen).toEqual(LARGE.slice(0, 1));
    await arrived();
    expect(seen).toHaveLength(1);
    large.resume();
    await until(() => seen.length > 1);
    expect(seen).toEqual(LARGE);
    large.resume();
    await over.promise;
    expect(service.sockets).toHaveLength(1);
  });
});

test.each<[string, (socket: Socket) => unknown, string]>([
  ['closes', (socket) => socket.destroy(), 'upstream_unreachable'],
  ['ends', (socket) => socket.end(), 'upstream_unreachable'],
  ['resets', (socket) => socket.resetAndDestroy(), 'upstream_unreachable'],
  ['ends after one byte', (socket) => socket.end('H'), 'upstream_bad_response'],
  ['ends in a head', (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Type: te'), 'upstream_bad_response'],
])(
  'a message on a kept connection that the service %s then has an error, and is not sent again',
  async (...row) => {
    const [, close, code] = row;
    let calls = 0;
    const pair = await startRelayAndUpstream((socket) => void socket.write(wholeStream('data: a\n\n')));
    expect(await (await pair.relay.send(pair.cookie)).text()).toBe('data: a\n\n');
    const [socket] = pair.upstream.sockets as [Socket];
    // The service does not answer on it any more.
    socket.removeAllListeners('data').on('data', () => {
      calls++;
      close(socket);
    });
    const failure = await failureOf(await pair.relay.send(pair.cookie, { body: '{"n":2}' }));
    expect(failure).toMatchObject({ code, status: 502, maybeStarted: true, retryable: false });
    expect([calls, pair.upstream.requests.length, pair.upstream.sockets.length]).toEqual([1, 1, 1]);
    await pair.close();
  },
);
