import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { bodyOf } from '../../src/relay/upstream/answer-arrival.ts';
import { idleLimit } from '../../src/relay/upstream/idle-limit.ts';
import { createUpstream, type Upstream } from '../../src/relay/upstream/send.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { until } from '../harness/clock/until.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
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
beforeEach(() => {
  subscribe('net.client.socket', onSocket);
  stopClock();
});
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
}

/** A service, and the relay's connections to it. */
interface Connected {
  readonly service: RawUpstream;
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
  }: Sending = {}) => {
    const body = Buffer.from(text);
    const request = { path: '/', headers: { 'content-length': String(body.length) }, body };
    return upstream.send(request, { signal, onDelayed, onSent: () => {} });
  };
  const sendAndRead = async () => {
    expect(String(Buffer.concat(await bodyOf(await send()).toArray()))).toBe(EVENT);
  };
  const newConnections = async () => {
    const before = service.sockets.length;
    await sendAndRead();
    return service.sockets.length - before;
  };
  return { service, send, sendAndRead, newConnections };
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

  test('that can be used if it was read soon', async () => {
    const connected = await start(ONE_SECOND);
    const readRest = await holdBack(connected);
    pass(100);
    await readRest();
    expect(await connected.newConnections()).toBe(0);
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

test('a message on a young connection is written to it however long it took', async () => {
  const { service, send, sendAndRead } = await start(ONE_SECOND);
  await sendAndRead();
  const answer = send();
  advanceClocks({ monotonic: 600 });
  await bodyOf(await answer).toArray();
  expect(service.sockets).toHaveLength(1);
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

  test('is not there until the service has closed one', () => {
    expect(learned().ended('relay', 4000, 4000, 4000, 4000, 4000)).toBe(Number.POSITIVE_INFINITY);
  });

  test('is half of the shortest time after which the service closed one of the last 32', () => {
    expect(learned(900, 300, 700).limit.ms()).toBe(150);
    const { limit, ended } = learned(300, ...Array<number>(31).fill(800));
    expect([limit.ms(), ended('service', 800)]).toEqual([150, 400]);
  });

  test('is forgotten after three in a row that the service leaves open for longer', () => {
    const { ended } = learned(300);
    ended('relay', 4000, 4000);
    ended('service', 300);
    expect([ended('relay', 4000, 4000), ended('relay', 4000)]).toEqual([150, Number.POSITIVE_INFINITY]);
    expect(ended('service', 500)).toBe(250);
    // Those that lived shorter than the shortest time show nothing.
    expect(learned(1500).ended('relay', 1000, 1000, 1000, 1000, 1000)).toBe(750);
  });
});
