import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { judgeResponse } from '../../src/relay/message/judge-response.ts';
import { sendAndJudge } from '../../src/relay/message/send-and-judge.ts';
import { bodyOf, type UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { createUpstream, type Upstream } from '../../src/relay/upstream/send.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import {
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const REQUEST = { path: '/', headers: { 'content-length': '2' }, body: Buffer.from('{}') };
const NEVER = new AbortController().signal;
const REFUSED = new Problem('rate_limited', 'Not now.');
const SMALL = ['data: a\n\n', 'data: b\n\n'];
const LARGE = ['a', 'b'].map((letter) => `data: ${letter.repeat(8192)}\n\n`);

let answer: string | Buffer;
/** Resolves when the system has taken the last answer. */
let written: Promise<void>;
let service: RawUpstream;
let upstream: Upstream;
let sent: number;
beforeEach(async () => {
  sent = 0;
  answer = wholeStream(...SMALL);
  service = await startRawUpstream((socket) => {
    written = new Promise((resolve) => socket.write(answer, () => resolve()));
  });
  upstream = createUpstream(new URL(service.url));
});
afterEach(async () => {
  upstream.close();
  await service.close();
});

function send(onDelayed = async () => {}, signal = NEVER) {
  return upstream.send(REQUEST, { signal, onDelayed, onSent: () => void sent++ });
}
const textOf = async (answer: UpstreamAnswer) => String(Buffer.concat(await bodyOf(answer).toArray()));
const allClosed = () => until(() => service.sockets.every(({ destroyed }) => destroyed));

function beBusy(): void {
  const from = performance.now();
  while (performance.now() - from < 20);
}

/** Sends a message while the process is busy, so that it is delayed. */
function sendDelayed(onDelayed: () => Promise<void>, signal = NEVER) {
  const answer = send(onDelayed, signal);
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
    for (let n = 0; n < 20; n++) await textOf(await send(async () => void asked++));
    expect(asked).toBeLessThan(20);
    expect(sent).toBe(20);
  });

  test.each(CONNECTIONS)(
    'on %s connection sends no byte before onDelayed resolves',
    async (_what, prepare) => {
      await prepare();
      const before = service.requests.length;
      const allowed = Promise.withResolvers<void>();
      let asked = 0;
      const delayed = sendDelayed(() => {
        asked++;
        return allowed.promise;
      });
      await until(() => asked > 0);
      await sleep(50);
      expect([service.requests.length, sent]).toEqual([before, 0]);
      allowed.resolve();
      expect((await delayed).status).toBe(200);
      await textOf(await delayed);
      expect([asked, sent, service.sockets.length]).toEqual([1, 1, 1]);
    },
  );

  test.each(CONNECTIONS)(
    'on %s connection leaves it to the next if onDelayed rejects',
    async (_what, prepare) => {
      await prepare();
      const before = service.requests.length;
      await expect(sendDelayed(() => Promise.reject(REFUSED))).rejects.toBe(REFUSED);
      expect(service.requests).toHaveLength(before);
      await keepConnection();
      expect(service.sockets).toHaveLength(1);
    },
  );

  test('and is stopped during onDelayed gives its connection back', async () => {
    await keepConnection();
    const stop = new AbortController();
    await expect(sendDelayed(async () => stop.abort('stopped'), stop.signal)).rejects.toBe('stopped');
    expect([service.requests.length, service.sockets.length]).toEqual([1, 1]);
  });

  test('is asked about again if the connection is lost and the next one is late, too', async () => {
    let asked = 0;
    const delayed = await sendDelayed(async () => {
      asked++;
      if (asked > 1) return;
      await until(() => service.sockets.length > 0);
      for (const socket of service.sockets) socket.destroy();
      await sleep(50);
      process.nextTick(beBusy);
    });
    expect(asked).toBe(2);
    await textOf(delayed);
    expect([service.requests.length, sent]).toEqual([1, 1]);
  });
});

describe('a message that is stopped closes its connection', () => {
  test('while it is sent', async () => {
    const stop = new AbortController();
    const stopped = send(undefined, stop.signal);
    stop.abort('stopped');
    await expect(stopped).rejects.toBe('stopped');
    await allClosed();
    expect(service.requests).toHaveLength(0);
  });

  test('when its headers arrive', async () => {
    answer = STREAM_HEAD;
    const stop = new AbortController();
    const stopping: Upstream['send'] = async (request, options) => {
      const arrived = await upstream.send(request, options);
      stop.abort('ended');
      return arrived;
    };
    const options = { onDelayed: async () => {}, onSent: () => {}, onStatus: () => {}, mask: String };
    const judged = sendAndJudge(judgeResponse, {
      ...options,
      send: stopping,
      request: REQUEST,
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
    const stopped = secure.send(REQUEST, { signal: stop.signal, onDelayed: async () => {}, onSent() {} });
    const [socket] = (await opened) as [Socket];
    const closed = once(socket.resume(), 'close');
    stop.abort('left');
    await expect(stopped).rejects.toBe('left');
    await closed;
    server.close();
    secure.close();
  });

  test('and opens none if it was stopped before', async () => {
    await expect(send(undefined, AbortSignal.abort('left'))).rejects.toBe('left');
    await keepConnection();
    expect(service.sockets).toHaveLength(1);
  });
});

/** Resolves when all has been read that the service has sent, and that is not held back. */
async function arrived(): Promise<void> {
  await written;
  for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
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
    expect(service.sockets).toHaveLength(2);
    first.close();
    await until(() => service.sockets[0]?.destroyed === true);
    expect(await textOf(second)).toBe(SMALL.join(''));
    await textOf(await send());
    expect(service.sockets).toHaveLength(2);
  });

  test('that is large is not read before its reader is there, nor while that pauses', async () => {
    const before = await send();
    await arrived();
    await new Promise<void>((end) => before.read({ data: before.pause, end, broken() {} }));
    answer = wholeStream(...LARGE);
    const large = await send();
    await arrived();
    expect(service.sockets).toHaveLength(1);
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
