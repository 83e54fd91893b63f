import type { Socket } from 'node:net';
import { afterAll, describe, expect, test } from '@jest/globals';
import { countSignOuts, readAll } from '../harness/clients/client-pair.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type BreakingFront, startBreakingFront } from '../harness/faults/breaking-front.ts';
import { OTHER_USER } from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';
import { chunk, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const closers: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function start(...args: Parameters<typeof startBreakingFront>): Promise<BreakingFront> {
  const front = await startBreakingFront(...args);
  closers.push(front.close);
  return front;
}

const numbered = (...ids: number[]) => ids.map((id) => `id: ${id}\ndata: ${id}\n\n`).join('');
/** Writes `text` as a stream and cuts it. */
const cutAfter = (text: string) => (socket: Socket) =>
  void socket.end(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]));
const whole = (text: string) => (socket: Socket) => void socket.end(wholeStream(text));
const lastEventIds = ({ asked }: BreakingFront) => asked.map(({ lastEventId }) => lastEventId);
const dataOf = (events: readonly { raw: unknown }[]) => events.map(({ raw }) => raw);

describe('a stream with ids that is cut', () => {
  testSideBySide([
    [
      'is resumed with the last id and the first body, even if the caller has changed the object',
      async () => {
        const pair = await start([
          cutAfter(`retry: 1\n${numbered(1, 2)}data: "without an id"\n\ndata: {"half`),
          (socket) =>
            void socket.end(String(wholeStream(numbered(3))).replace('\r\n', '\r\nX-Request-Id: second\r\n')),
        ]);
        const message = { text: 'hi' };
        const stream = pair.client.send(message);
        const { events, error } = await readAll(stream, () => {
          message.text = 'changed';
        });
        expect(error).toBeUndefined();
        expect(dataOf(events)).toEqual([1, 2, 'without an id', 3]);
        expect(lastEventIds(pair)).toEqual([undefined, '2']);
        expect(pair.asked.map(({ body }) => body)).toEqual(['{"text":"hi"}', '{"text":"hi"}']);
        // The request id is that of the current answer.
        expect(stream.requestId).toBe('second');
      },
    ],
    [
      'is resumed with an id in any script',
      async () => {
        const id = 'né 🦊';
        const pair = await start([cutAfter(`retry: 1\nid: ${id}\ndata: 1\n\n`), whole('data: 2\n\n')]);
        const { events, error } = await readAll(pair.client.send('hi'));
        expect(error).toBeUndefined();
        expect(dataOf(events)).toEqual([1, 2]);
        const [, sent = ''] = lastEventIds(pair);
        expect(Buffer.from(sent, 'latin1').toString('utf8')).toBe(id);
      },
    ],
    [
      'is resumed after the time of retry, or after a second',
      async () => {
        const begins = { early: 'retry: 1\n', usual: '', late: 'retry: 2500\n' };
        const resumed: string[] = [];
        const pair = await start([
          (socket, { lastEventId, body }) => {
            const { text } = JSON.parse(body) as { text: keyof typeof begins };
            if (lastEventId === undefined) return cutAfter(begins[text] + numbered(1))(socket);
            resumed.push(text);
            whole(numbered(2))(socket);
          },
        ]);
        const reads = (['late', 'usual', 'early'] as const).map((text) => readAll(pair.client.send(text)));
        for (const { error } of await Promise.all(reads)) expect(error).toBeUndefined();
        expect(resumed).toEqual(['early', 'usual', 'late']);
      },
    ],
    [
      'is resumed after Retry-After if the relay sent it',
      async () => {
        const times: number[] = [];
        const timed: typeof fetch = (url, init) => {
          if (String(url).includes('/message/sse')) times.push(performance.now());
          return fetch(url, init);
        };
        const pair = await start(
          [
            cutAfter(`retry: 1\n${numbered(1)}`),
            (socket) => void socket.end(plainAnswer('429 Slowly', ['Retry-After: 1'])),
            whole(numbered(2)),
          ],
          { fetch: timed },
        );
        const { events, error } = await readAll(pair.client.send('hi'));
        expect(error).toBeUndefined();
        expect(dataOf(events)).toEqual([1, 2]);
        const [, second = 0, third = 0] = times;
        expect(third - second).toBeGreaterThan(990);
      },
    ],
    [
      'is resumed after every temporary failure: an error page, no answer, a broken resume, silence',
      async () => {
        const page = plainAnswer('502 Bad Gateway', ['Content-Type: text/html'], '<h1>Bad gateway</h1>');
        const pair = await start(
          [
            cutAfter(`retry: 1\n${numbered(1)}`),
            (socket) => void socket.end(page),
            (socket) => socket.destroy(),
            // A resume without a new id.
            cutAfter('data: "again"\n\n'),
            (socket) => void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(': silence\n\n')])),
            whole(numbered(2)),
          ],
          { silenceMs: 200 },
        );
        const { events, error } = await readAll(pair.client.send('hi'));
        expect(error).toBeUndefined();
        expect(dataOf(events)).toEqual([1, 'again', 2]);
        expect(lastEventIds(pair)).toEqual([undefined, ...Array(5).fill('1')]);
      },
    ],
  ]);
});

const problem = { type: 'about:blank', status: 502, code: 'upstream_stream_broken', detail: 'It broke off.' };
const endedWith = (fields: object) => `event: error\ndata: ${JSON.stringify({ ...problem, ...fields })}\n\n`;

describe('a stream with ids that ends with an error event of the relay', () => {
  test.each([
    ['that does not say whether another try makes sense', 'upstream_stream_broken', 502, {}],
    ['that says that none does', 'upstream_stream_broken', 502, { retryable: false }],
    ['at the deadline', 'deadline_exceeded', 504, { retryable: false }],
  ])('is not resumed: an event %s', async (_, code, status, fields) => {
    const pair = await start([
      whole(`retry: 1
${numbered(1)}${endedWith({ code, status, ...fields })}`),
    ]);
    const { events, error } = await readAll(pair.client.send('hi'));
    expect(dataOf(events)).toEqual([1]);
    expect(error).toMatchObject({
      name: 'RelayError',
      message: problem.detail,
      code,
      status,
      retryable: false,
    });
    expect(lastEventIds(pair)).toEqual([undefined]);
  });
});

test('an error event says in how many seconds to try again', async () => {
  const busy = { status: 429, code: 'upstream_rate_limited', retryable: 'new message', retryAfter: 7 };
  const pair = await start([whole(endedWith(busy))]);
  const { error } = await readAll(pair.client.send('hi'));
  expect(error).toMatchObject(busy);
  expect(lastEventIds(pair)).toEqual([undefined]);
});

describe('a resumption that the relay refuses', () => {
  const refusal = (status: number, code: string) => {
    const body = JSON.stringify({ ...problem, status, code, retryable: false, maybeStarted: true });
    const answer = plainAnswer(`${status} No`, ['Content-Type: application/problem+json'], body);
    return (socket: Socket) => void socket.end(answer);
  };

  test.each([
    [502, 'upstream_unreachable'],
    [504, 'upstream_timeout'],
  ])('with %i is tried again, since it is no run', async (status, code) => {
    const pair = await start([
      cutAfter(`retry: 1\n${numbered(1)}`),
      refusal(status, code),
      whole(numbered(2)),
    ]);
    const { events, error } = await readAll(pair.client.send('hi'));
    expect(error).toBeUndefined();
    expect(dataOf(events)).toEqual([1, 2]);
  });

  test('at the deadline is the last one', async () => {
    const pair = await start([cutAfter(`retry: 1\n${numbered(1)}`), refusal(504, 'deadline_exceeded')]);
    const { error } = await readAll(pair.client.send('hi'));
    const fields = { retryable: false, maybeStarted: true };
    expect(error).toMatchObject({ code: 'deadline_exceeded', status: 504, ...fields });
    expect(pair.asked).toHaveLength(2);
  });
});

test('a refusal says in `retryable` whether another try makes sense', async () => {
  const body = JSON.stringify({ ...problem, status: 429, code: 'rate_limited', retryable: 'new message' });
  const pair = await start([
    (socket) => void socket.end(plainAnswer('429 Slowly', ['Content-Type: application/problem+json'], body)),
  ]);
  const { error } = await readAll(pair.client.send('hi'));
  expect(error).toMatchObject({ code: 'rate_limited', status: 429, retryable: 'new message' });
});

describe('a stream with ids is given up', () => {
  testSideBySide([
    [
      'after five resumes without a new id',
      async () => {
        const pair = await start([cutAfter(`retry: 1\n${numbered(1)}`), cutAfter('data: {"half')]);
        const { events, error } = await readAll(pair.client.send('hi'));
        expect(dataOf(events)).toEqual([1]);
        expect(error).toMatchObject({ name: 'RelayError', code: 'connection_lost' });
        expect(lastEventIds(pair)).toEqual([undefined, ...Array(5).fill('1')]);
      },
    ],
    [
      'but not while new ids arrive',
      async () => {
        let id = 0;
        const pair = await start([
          (socket) => (++id === 9 ? whole(numbered(id)) : cutAfter(`retry: 1\n${numbered(id)}`))(socket),
        ]);
        const { events, error } = await readAll(pair.client.send('hi'));
        expect(error).toBeUndefined();
        expect(dataOf(events)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
      },
    ],
    [
      'if the service starts at the beginning each time',
      async () => {
        const pair = await start([cutAfter(`retry: 1\n${numbered(1, 2)}`)]);
        const { error } = await readAll(pair.client.send('hi'));
        expect(error).toMatchObject({ code: 'connection_lost' });
        expect(pair.asked).toHaveLength(6);
      },
    ],
    [
      'at last, even if it has new ids for ever',
      async () => {
        let id = 0;
        const pair = await start([(socket) => cutAfter(`retry: 1\n${numbered(++id)}`)(socket)]);
        const { error } = await readAll(pair.client.send('hi'));
        expect(error).toMatchObject({ code: 'connection_lost' });
        expect(pair.asked).toHaveLength(51);
      },
    ],
    [
      'when the relay refuses it because the session has ended',
      async () => {
        const refusal = JSON.stringify({ ...problem, code: 'unauthenticated', status: 401 });
        const pair = await start([
          cutAfter(`retry: 1\n${numbered(1)}`),
          (socket) =>
            void socket.end(plainAnswer('401 No', ['Content-Type: application/problem+json'], refusal)),
        ]);
        const signOuts = countSignOuts(pair.client);
        const { error } = await readAll(pair.client.send('hi'));
        expect(error).toMatchObject({ code: 'unauthenticated', status: 401 });
        expect(signOuts()).toBe(1);
        expect(pair.asked).toHaveLength(2);
      },
    ],
    [
      'after an event with an empty id',
      async () => {
        const pair = await start([cutAfter(`retry: 1\n${numbered(1)}id\ndata: 2\n\n`)]);
        const { events, error } = await readAll(pair.client.send('hi'));
        expect(dataOf(events)).toEqual([1, 2]);
        expect(error).toMatchObject({ code: 'connection_lost' });
        expect(pair.asked).toHaveLength(1);
      },
    ],
  ]);

  test('when somebody has signed in again before it was resumed', async () => {
    const pair = await start([cutAfter(`retry: 1\n${numbered(1)}`), whole(numbered(2))]);
    const signOuts = countSignOuts(pair.client);
    const { events, error } = await readAll(pair.client.send('hi'), () =>
      pair.client.signIn(OTHER_USER.name, OTHER_USER.password),
    );
    expect(dataOf(events)).toEqual([1]);
    expect(error).toMatchObject({ code: 'session_ended', status: 401 });
    expect(pair.asked).toHaveLength(1);
    expect(signOuts()).toBe(0);
  });

  test.each(['abort', 'break'])('when its reader has stopped by %s', async (way) => {
    const open = (socket: Socket) =>
      void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(`retry: 1\n${numbered(1)}`)]));
    const pair = await start([open, cutAfter(`retry: 300\n${numbered(1)}`), whole(numbered(2))]);
    const abort = new AbortController();
    try {
      for await (const _ of pair.client.send('left', { signal: abort.signal })) {
        if (way === 'break') break;
        abort.abort();
      }
    } catch {
      expect(way).toBe('abort');
    }
    // When another stream with a longer pause is resumed, the first one would have been resumed.
    await readAll(pair.client.send('another'));
    const texts = pair.asked.map(({ body }) => (JSON.parse(body) as { text: string }).text);
    expect(texts).toEqual(['left', 'another', 'another']);
  });
});
