import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { judgeResponse } from '../../src/relay/message/judge-response.ts';
import { sendAndJudge } from '../../src/relay/message/send-and-judge.ts';
import { bodyOf, type UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { idleLimit } from '../../src/relay/upstream/idle-limit.ts';
import { createUpstream, type Upstream } from '../../src/relay/upstream/send.ts';
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

/** So large that its end is not taken before the answer is read. */
const EVENT = `data: ${'a'.repeat(8192)}\n\n`;
const BODY = Buffer.concat([chunk(EVENT), Buffer.from(LAST_CHUNK)]);
/** With this, the relay uses a connection for less than a second. */
const ONE_SECOND = 'Keep-Alive: timeout=2';
const FOUR_SECONDS = 'Keep-Alive: timeout=5';

/** The relay's ends of its connections. */
const ends: Socket[] = [];
const onSocket = (message: unknown) => void ends.push((message as { socket: Socket }).socket);
const opened: { readonly service: RawUpstream; readonly upstream: Upstream }[] = [];
beforeEach(() => subscribe('net.client.socket', onSocket));
afterEach(async () => {
  unsubscribe('net.client.socket', onSocket);
  ends.length = 0;
  for (const { service, upstream } of opened.splice(0)) {
    upstream.close();
    await service.close();
  }
});

interface Sending {
  readonly text?: string;
  readonly signal?: AbortSignal;
  readonly onDelayed?: () => Promise<void>;
  readonly onSent?: () => void;
}

/** A service, and the relay's connections to it. */
interface Connected {
  readonly service: RawUpstream;
  readonly upstream: Upstream;
  send(sending?: Sending): ReturnType<Upstream['send']>;
  sendAndRead(): Promise<void>;
  /** How many new connections the next message needs. */
  newConnections(): Promise<number>;
}

async function connectTo(onRequest: Parameters<typeof startRawUpstream>[0]): Promise<Connected> {
  const service = await startRawUpstream(onRequest);
  const upstream = createUpstream(new URL(service.url));
  opened.push({ service, upstream });
  const send = ({
    text = '{}',
    signal = new AbortController().signal,
    onDelayed = async () => {},
    onSent = () => {},
  }: Sending = {}) => {
    const body = Buffer.from(text);
    const request = { path: '/', headers: { 'content-length': String(body.length) }, body };
    return upstream.send(request, { signal, onDelayed, onSent });
  };
  const sendAndRead = async () => {
    expect(String(Buffer.concat(await bodyOf(await send()).toArray()))).toBe(EVENT);
  };
  const newConnections = async () => {
    const before = service.sockets.length;
    await sendAndRead();
    return service.sockets.length - before;
  };
  return { service, upstream, send, sendAndRead, newConnections };
}

/** Starts a service that answers completely. */
function start(header = ''): Promise<Connected> {
  const head = STREAM_HEAD.replace('\r\n\r\n', `\r\n${header}${header && '\r\n'}\r\n`);
  return connectTo((socket) => void socket.write(Buffer.concat([Buffer.from(head), BODY])));
}

/** Begins to read an answer whose end has not been taken; the returned function reads the rest. */
async function holdBack({ send }: Connected): Promise<() => Promise<void>> {
  const answer = await send();
  let isHeld = true;
  let onData = () => {};
  const begun = new Promise<void>((resolve) => {
    onData = resolve;
  });
  const ended = new Promise<void>((resolve, reject) => {
    answer.read({
      data() {
        if (isHeld) answer.pause();
        onData();
      },
      end: resolve,
      broken: reject,
    });
  });
  await begun;
  return () => {
    isHeld = false;
    answer.resume();
    return ended;
  };
}

describe('idle connections', () => {
  beforeEach(() => stopClock());

  test('an idle connection is kept for the next message, for a while', async () => {
    const { service, sendAndRead, newConnections } = await start();
    await sendAndRead();
    pass(3_999);
    expect(await newConnections()).toBe(0);
    expect(service.requests).toHaveLength(2);
  });

  test.each([
    ['before a service closes it after 5 s', '', 4_000],
    ['earlier if the service announces a shorter time', ONE_SECOND, 1_000],
    ['at once if the announced time is too short', 'Keep-Alive: timeout=1', 0],
  ])('an idle connection is closed by the relay %s', async (_when, header, ms) => {
    const { service, sendAndRead, newConnections } = await start(header);
    await sendAndRead();
    // undici starts the timer of an idle connection in the next turn of the event loop.
    await new Promise(setImmediate);
    pass(ms);
    await until(() => service.sockets[0]?.readableEnded === true);
    expect(await newConnections()).toBe(1);
  });

  const CLOSINGS: [how: string, close: (socket: Socket) => void][] = [
    ['ends', (socket) => void socket.end()],
    ['resets', (socket) => void socket.resetAndDestroy()],
    [
      'answers 408 on',
      (socket) => void socket.end('HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n'),
    ],
  ];

  describe('an answer that was not read for a while leaves a connection', () => {
    test('that is as much older', async () => {
      const connected = await start(ONE_SECOND);
      const readRest = await holdBack(connected);
      pass(700);
      await readRest();
      pass(500);
      expect(await connected.newConnections()).toBe(1);
    });

    test('that may be too old at once, and does not hide younger ones', async () => {
      const connected = await start('Keep-Alive: timeout=3');
      const { service, sendAndRead, newConnections } = connected;
      const readRest = await holdBack(connected);
      await sendAndRead();
      pass(1000);
      await sendAndRead();
      pass(1200);
      await readRest();
      expect(await newConnections()).toBe(0);
      expect(service.sockets).toHaveLength(2);
    });
  });

  describe('if the service closes idle connections early', () => {
    /** The relay has seen that its first connection is closed. */
    const firstClosed = () => until(() => ends[0]?.closed === true);

    test.each(CLOSINGS)('and %s them, they are used for half of that time only', async (_how, close) => {
      const { service, sendAndRead, newConnections } = await start();
      await sendAndRead();
      pass(1600);
      close(service.sockets[0] as Socket);
      await firstClosed();
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
    ])(
      'and %s one that a message takes at that moment, the message is sent on a new one',
      async (_how, close) => {
        const { service, send, sendAndRead, newConnections } = await start();
        await sendAndRead();
        pass(400);
        // Takes the connection; it is written to at the earliest in the next turn of the event loop.
        const answer = send();
        close(ends[0] as Socket);
        await bodyOf(await answer).toArray();
        expect(service.sockets).toHaveLength(2);
        expect(service.requests).toHaveLength(2);
        pass(200);
        expect(await newConnections()).toBe(1);
      },
    );

    test('and reads a message without answering it, they are used for half of that time', async () => {
      let answers = true;
      const { send, sendAndRead, newConnections } = await connectTo((socket) => {
        if (answers) socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), BODY]));
        else socket.destroy();
      });
      await sendAndRead();
      pass(1200);
      answers = false;
      await expect(send()).rejects.toMatchObject({
        code: 'upstream_unreachable',
        options: { maybeStarted: true },
      });
      answers = true;
      expect(await newConnections()).toBe(1);
      expect(await newConnections()).toBe(0);
      pass(600);
      expect(await newConnections()).toBe(1);
    });

    test('and three later ones stay open as long as the relay keeps them, that is forgotten', async () => {
      const { service, sendAndRead, newConnections } = await start(FOUR_SECONDS);
      await sendAndRead();
      pass(200);
      service.sockets[0]?.destroy();
      await firstClosed();
      // Each is too old when the next message comes, but stays open until its four seconds are over.
      for (let n = 0; n < 3; n++) {
        pass(150);
        expect(await newConnections()).toBe(1);
        expect(ends.at(-2)?.destroyed).toBe(n === 0);
      }
      // undici starts the timer of an idle connection in the next turn of the event loop.
      await new Promise(setImmediate);
      pass(4000);
      await until(() => ends.every(({ closed }) => closed));
      await sendAndRead();
      pass(150);
      expect(await newConnections()).toBe(0);
    });

    test('a new connection is not too old, however long its message is delayed', async () => {
      const { service, send, sendAndRead } = await start();
      await sendAndRead();
      pass(50);
      service.sockets[0]?.destroy();
      await firstClosed();
      const answer = send({ onDelayed: async () => pass(200) });
      pass(20);
      await bodyOf(await answer).toArray();
      expect(service.sockets).toHaveLength(2);
    });

    test('and the relay closes one, that says nothing about the others', async () => {
      let answers = true;
      const { service, send, sendAndRead, newConnections } = await connectTo((socket) => {
        if (answers) socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), BODY]));
      });
      await sendAndRead();
      answers = false;
      const stop = new AbortController();
      const stopped = send({ signal: stop.signal });
      await service.nextRequest();
      stop.abort('stopped');
      await expect(stopped).rejects.toBe('stopped');
      answers = true;
      await sendAndRead();
      pass(150);
      expect(await newConnections()).toBe(0);
    });

    test('and closes a connection during an answer, that says nothing about idle ones', async () => {
      let whole = true;
      const { send, sendAndRead, newConnections } = await connectTo((socket) => {
        if (whole) socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), BODY]));
        else socket.end(STREAM_HEAD);
      });
      await sendAndRead();
      whole = false;
      await expect(bodyOf(await send()).toArray()).rejects.toMatchObject({ code: 'ECONNRESET' });
      whole = true;
      await sendAndRead();
      pass(150);
      expect(await newConnections()).toBe(0);
    });
  });

  test('at most 256 idle connections are kept: those that were used last', async () => {
    const socketOf = new Map<string, Socket>();
    const { send } = await connectTo((socket, { body }) => void socketOf.set(String(body), socket));
    const answers = Array.from({ length: 260 }, (_, n) => send({ text: String(n) }));
    await until(() => socketOf.size === 260);
    for (const [n, answer] of answers.entries()) {
      socketOf.get(String(n))?.write(Buffer.concat([Buffer.from(STREAM_HEAD), BODY]));
      await bodyOf(await answer).toArray();
    }
    const closed = () => [...socketOf].filter(([, { destroyed }]) => destroyed).map(([n]) => Number(n));
    await until(() => closed().length >= 4);
    expect(closed().sort()).toEqual([0, 1, 2, 3]);
  });

  test('a message that a busy process writes too late does not go to a connection that has become too old', async () => {
    const { service, send, sendAndRead } = await start(ONE_SECOND);
    await sendAndRead();
    pass(600);
    let delayed = 0;
    const answer = send({ onDelayed: async () => void delayed++ });
    // The event loop comes to the message before it comes to timers that are due.
    advanceClocks({ monotonic: 600 });
    await bodyOf(await answer).toArray();
    expect(delayed).toBe(1);
    expect(service.sockets).toHaveLength(2);
    expect(service.requests).toHaveLength(2);
  });

  describe('the limit of idle connections', () => {
    /** A limit that has learned from connections which the service closed at these ages. */
    function learned(...ages: number[]) {
      const limit = idleLimit();
      const ended = (by: 'relay' | 'service', ...more: number[]) => {
        for (const age of more) limit.ended(age, by);
        return limit.ms();
      };
      ended('service', ...ages);
      return { limit, ended };
    }

    test('is half of the shortest time after which the service closed one of the last 32', () => {
      expect(learned(900, 300, 700).limit.ms()).toBe(150);
      const { limit, ended } = learned(300, ...Array<number>(31).fill(800));
      expect([limit.ms(), ended('service', 800)]).toEqual([150, 400]);
    });

    test('is forgotten after three in a row that the service leaves open for longer, and not for shorter', () => {
      const { ended } = learned(300);
      ended('relay', 4000, 4000);
      ended('service', 300);
      expect([ended('relay', 4000, 4000), ended('relay', 4000)]).toEqual([150, Number.POSITIVE_INFINITY]);
      expect(learned(1500).ended('relay', 1000, 1000, 1000)).toBe(750);
    });
  });
});

describe('a request', () => {
  const SMALL = ['data: a\n\n', 'data: b\n\n'];
  const LARGE = ['a', 'b'].map((letter) => `data: ${letter.repeat(8192)}\n\n`);

  let answer: string | Buffer;
  /** Resolves when the system has taken the last answer. */
  let written: Promise<void>;
  let own: Connected;
  let sent: number;
  beforeEach(async () => {
    sent = 0;
    answer = wholeStream(...SMALL);
    own = await connectTo((socket) => {
      written = new Promise((resolve) => socket.write(answer, () => resolve()));
    });
  });

  const send = (sending: Sending = {}) => own.send({ onSent: () => void sent++, ...sending });
  const textOf = async (one: UpstreamAnswer) => String(Buffer.concat(await bodyOf(one).toArray()));
  const allClosed = () => until(() => own.service.sockets.every(({ destroyed }) => destroyed));
  async function turns(count: number): Promise<void> {
    for (let turn = 0; turn < count; turn += 1) await new Promise(setImmediate);
  }

  function beBusy(): void {
    const from = performance.now();
    while (performance.now() - from < 20);
  }

  /** Sends a message while the process is busy, so that it is delayed. */
  function sendDelayed(onDelayed: () => Promise<void>, signal?: AbortSignal) {
    const answer = send({ onDelayed, ...(signal && { signal }) });
    beBusy();
    return answer;
  }

  /** Opens a connection that is kept for the next message. */
  async function keepConnection(): Promise<void> {
    await textOf(await send());
    sent = 0;
  }

  describe('a message that is delayed', () => {
    const CONNECTIONS: [string, () => Promise<void>][] = [
      ['a new', async () => {}],
      ['a kept', keepConnection],
    ];

    test('is asked about, and others are not', async () => {
      let asked = 0;
      // A busy machine may delay some.
      for (let n = 0; n < 20; n++) await textOf(await send({ onDelayed: async () => void asked++ }));
      expect(asked).toBeLessThan(20);
      expect(sent).toBe(20);
    });

    test.each(CONNECTIONS)(
      'on %s connection sends no byte before onDelayed resolves',
      async (_what, prepare) => {
        await prepare();
        const before = own.service.requests.length;
        const allowed = Promise.withResolvers<void>();
        let asked = 0;
        const delayed = sendDelayed(() => {
          asked++;
          return allowed.promise;
        });
        await until(() => asked > 0);
        await turns(20);
        expect([own.service.requests.length, sent]).toEqual([before, 0]);
        allowed.resolve();
        expect((await delayed).status).toBe(200);
        await textOf(await delayed);
        expect([asked, sent, own.service.sockets.length]).toEqual([1, 1, 1]);
      },
    );

    test.each(CONNECTIONS)(
      'on %s connection leaves it to the next if onDelayed rejects',
      async (_what, prepare) => {
        await prepare();
        const before = own.service.requests.length;
        await expect(sendDelayed(() => Promise.reject('no'))).rejects.toBe('no');
        expect(own.service.requests).toHaveLength(before);
        await keepConnection();
        expect(own.service.sockets).toHaveLength(1);
      },
    );

    test('and is stopped during onDelayed gives its connection back', async () => {
      await keepConnection();
      const stop = new AbortController();
      await expect(sendDelayed(async () => stop.abort('stopped'), stop.signal)).rejects.toBe('stopped');
      expect([own.service.requests.length, own.service.sockets.length]).toEqual([1, 1]);
    });

    test('is asked about again if the connection is lost and the next one is late, too', async () => {
      let asked = 0;
      const delayed = await sendDelayed(async () => {
        asked++;
        if (asked > 1) return;
        await until(() => own.service.sockets.length > 0);
        for (const socket of own.service.sockets) socket.destroy();
        await sleep(50);
        process.nextTick(beBusy);
      });
      expect(asked).toBe(2);
      await textOf(delayed);
      expect([own.service.requests.length, sent]).toEqual([1, 1]);
    });
  });

  describe('a message that is stopped closes its connection', () => {
    test('when its headers arrive', async () => {
      answer = STREAM_HEAD;
      const stop = new AbortController();
      const stopping: Upstream['send'] = async (request, options) => {
        const arrived = await own.upstream.send(request, options);
        stop.abort('ended');
        return arrived;
      };
      const options = { onDelayed: async () => {}, onSent: () => {}, onStatus: () => {}, mask: String };
      const judged = sendAndJudge(judgeResponse, {
        ...options,
        send: stopping,
        request: { path: '/', headers: { 'content-length': '2' }, body: Buffer.from('{}') },
        signal: stop.signal,
      });
      await expect(judged).rejects.toBe('ended');
      await allClosed();
    });

    test('while that is being opened', async () => {
      // It takes the connection, and never answers the TLS handshake.
      const server = createServer().listen(0, '127.0.0.1');
      await once(server, 'listening');
      const opened = once(server, 'connection');
      const secure = createUpstream(new URL(`https://127.0.0.1:${(server.address() as AddressInfo).port}`));
      const stop = new AbortController();
      const stopped = secure.send(
        { path: '/', headers: {}, body: Buffer.from('{}') },
        { signal: stop.signal, onDelayed: async () => {}, onSent() {} },
      );
      const [socket] = (await opened) as [Socket];
      const closed = once(socket.resume(), 'close');
      stop.abort('left');
      await expect(stopped).rejects.toBe('left');
      await closed;
      server.close();
      secure.close();
    });

    test('and opens none if it was stopped before', async () => {
      await expect(send({ signal: AbortSignal.abort('left') })).rejects.toBe('left');
      await keepConnection();
      expect(own.service.sockets).toHaveLength(1);
    });
  });

  /** Resolves when all has been read that the service has sent, and that is not held back. */
  async function arrived(): Promise<void> {
    await written;
    await turns(5);
  }

  describe('an answer', () => {
    test.each([
      ['small', SMALL],
      ['large', LARGE],
    ])('with %s events that is read late is whole', async (_size, events) => {
      answer = wholeStream(...events);
      const late = await send();
      await arrived();
      expect(await textOf(late)).toBe(events.join(''));
    });

    test('that has arrived whole keeps its connection until it is read, and closes it if it is not', async () => {
      const [first, second] = [await send(), await send()];
      await arrived();
      expect(own.service.sockets).toHaveLength(2);
      first.close();
      await until(() => own.service.sockets[0]?.destroyed === true);
      expect(await textOf(second)).toBe(SMALL.join(''));
      await textOf(await send());
      expect(own.service.sockets).toHaveLength(2);
    });

    test('that is large is not read before its reader is there, nor while that pauses', async () => {
      const before = await send();
      await arrived();
      await new Promise<void>((end) => before.read({ data: before.pause, end, broken() {} }));
      answer = wholeStream(...LARGE);
      const large = await send();
      await arrived();
      expect(own.service.sockets).toHaveLength(1);
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
        broken: (cause) => expect(cause).toBe(''),
      });
      expect(seen).toEqual(LARGE.slice(0, 1));
      await arrived();
      expect(seen).toHaveLength(1);
      large.resume();
      await until(() => seen.length > 1);
      expect(seen).toEqual(LARGE);
      large.resume();
      await over.promise;
    });
  });
});

describe('a message on a kept connection', () => {
  const UNREACHABLE = 'upstream_unreachable';
  const BAD = 'upstream_bad_response';

  test.each<[string, (socket: Socket) => unknown, string]>([
    ['closes', (socket) => socket.destroy(), UNREACHABLE],
    ['ends', (socket) => socket.end(), UNREACHABLE],
    ['resets', (socket) => socket.resetAndDestroy(), UNREACHABLE],
    ['ends after one byte', (socket) => socket.end('H'), BAD],
    ['ends in a head', (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Type: text/ev'), BAD],
  ])(
    'that the service %s at that moment is answered with an error, and not sent again',
    async (_how, close, code) => {
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
});
