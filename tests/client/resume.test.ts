import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { createBotClient, type MessageState } from '../../src/client/bot-client.ts';
import { startBotService } from '../../src/demo/bot-service.ts';
import { type ClientPair, countSignOuts, readAll, startClientPair } from '../support/client-pair.ts';
import { startFront } from '../support/front.ts';
import { plainAnswer } from '../support/pair.ts';
import { chunk, type RawRequest, STREAM_HEAD, wholeStream } from '../support/raw-upstream.ts';
import { CANARY, OTHER_USER, startRelay, USER } from '../support/relay.ts';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** A pair whose upstream does the next of `answers` for each request, and the last of them from then on. */
async function start(
  answers: ((socket: Socket, request: RawRequest) => void)[],
  ...others: [environment?: Record<string, string>, options?: { silenceMs?: number; fetch?: typeof fetch }]
): Promise<ClientPair> {
  let asked = 0;
  const pair = await startClientPair(
    (socket, request) => {
      answers[Math.min(asked++, answers.length - 1)]?.(socket, request);
    },
    ...others,
  );
  closers.push(pair.close);
  return pair;
}

const numbered = (...ids: number[]) => ids.map((id) => `id: ${id}\ndata: ${id}\n\n`).join('');
/** Writes `text` as a stream, which is then cut. */
const cutAfter = (text: string) => (socket: Socket) =>
  void socket.end(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]));
const whole = (text: string) => (socket: Socket) => void socket.write(wholeStream(text));
const lastEventIds = ({ upstream }: ClientPair) => upstream.requests.map(({ all }) => all('last-event-id'));
const dataOf = (events: readonly { data: unknown }[]) => events.map(({ data }) => data);

describe('a stream with ids that is cut', () => {
  test('goes on where it broke off: no event is lost or repeated', async () => {
    const service = await startBotService({ keys: [CANARY.key], pace: { wordMs: 5 } });
    closers.push(service.close);
    const relay = await startRelay(service.url, { BOTS: 'demo/resume' });
    closers.push(relay.close);
    const client = createBotClient({ baseUrl: relay.url, namespace: 'demo', botProviderName: 'resume' });
    await client.signIn(USER.name, USER.password);
    const states: MessageState[] = [];
    const { events, error } = await readAll(client.send('hi', { onState: (state) => states.push(state) }));
    expect(error).toBeUndefined();
    const numbers = events.map(({ id }) => Number(id?.split('.')[1]));
    expect(numbers).toEqual(numbers.map((_, index) => index + 1));
    expect(events.at(-1)?.event).toBe('asgard.run.done');
    expect(states).toEqual(['streaming', 'waiting', 'streaming', 'done']);
  });

  test('is asked for with the last id and the body that was sent, whatever became of the object', async () => {
    const pair = await start([
      cutAfter(`retry: 1\n${numbered(1, 2)}data: "without an id"\n\ndata: {"half`),
      whole(numbered(3)),
    ]);
    const message = { text: 'hi' };
    const stream = pair.client.send(message);
    const { events, error } = await readAll(stream, () => {
      message.text = 'changed';
    });
    expect(error).toBeUndefined();
    expect(dataOf(events)).toEqual([1, 2, 'without an id', 3]);
    expect(lastEventIds(pair)).toEqual([[], ['2']]);
    expect(pair.upstream.requests.map(({ body }) => String(body))).toEqual([
      '{"text":"hi"}',
      '{"text":"hi"}',
    ]);
    // The request id is that of the answer which is being read.
    const second = await pair.relay.logLine((one) => one.requestId === stream.requestId && 'outcome' in one);
    expect(second).toMatchObject({ outcome: 'ok' });
  });

  test('is asked for with an id in any script', async () => {
    const id = 'né 🦊';
    const pair = await start([cutAfter(`retry: 1\nid: ${id}\ndata: 1\n\n`), whole('data: 2\n\n')]);
    const { events, error } = await readAll(pair.client.send('hi'));
    expect(error).toBeUndefined();
    expect(dataOf(events)).toEqual([1, 2]);
    const [, [sent = ''] = []] = lastEventIds(pair);
    expect(Buffer.from(sent, 'latin1').toString('utf8')).toBe(id);
  });

  test('is asked for after as long as it said in retry, or a second', async () => {
    const begins = { early: 'retry: 1\n', usual: '', late: 'retry: 2500\n' };
    const resumed: string[] = [];
    const pair = await start([
      (socket, { all, body }) => {
        const { text } = JSON.parse(String(body)) as { text: keyof typeof begins };
        if (all('last-event-id').length === 0) return cutAfter(begins[text] + numbered(1))(socket);
        resumed.push(text);
        whole(numbered(2))(socket);
      },
    ]);
    const reads = (['late', 'usual', 'early'] as const).map((text) => readAll(pair.client.send(text)));
    for (const { error } of await Promise.all(reads)) expect(error).toBeUndefined();
    expect(resumed).toEqual(['early', 'usual', 'late']);
  });

  test('is asked for again when the relay said, if it said so', async () => {
    const times: number[] = [];
    const timed: typeof fetch = (url, init) => {
      if (String(url).includes('/generic/')) times.push(performance.now());
      return fetch(url, init);
    };
    const pair = await start(
      [
        cutAfter(`retry: 1\n${numbered(1)}`),
        (socket) => void socket.write(plainAnswer('429 Slowly', ['Retry-After: 1'])),
        whole(numbered(2)),
      ],
      { RATE_MAX_WAIT_MS: '0' },
      { fetch: timed },
    );
    const { events, error } = await readAll(pair.client.send('hi'));
    expect(error).toBeUndefined();
    expect(dataOf(events)).toEqual([1, 2]);
    const [, second = 0, third = 0] = times;
    expect(third - second).toBeGreaterThan(990);
  });

  test('is resumed through everything that may pass: no connection, an error page, silence, a broken resume', async () => {
    const pair = await start(
      [
        cutAfter(`retry: 1\n${numbered(1)}`),
        // Still without an id of its own: the relay ends it with an error event.
        cutAfter('data: "again"\n\n'),
        (socket) => void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(': silence\n\n')])),
        whole(numbered(2)),
      ],
      { HEARTBEAT_MS: '0' },
    );
    let asked = 0;
    const front = await startFront({
      answer(req, res) {
        if (!req.url?.startsWith('/generic')) return false;
        asked++;
        if (asked === 2) res.writeHead(502, { 'Content-Type': 'text/html' }).end('<h1>Bad gateway</h1>');
        if (asked === 3) res.destroy();
        return asked === 2 || asked === 3;
      },
    });
    closers.push(front.close);
    front.leadTo(pair.relay.port);
    const client = pair.newClient({ baseUrl: front.url, silenceMs: 200 });
    await client.signIn(USER.name, USER.password);
    const { events, error } = await readAll(client.send('hi'));
    expect(error).toBeUndefined();
    expect(dataOf(events)).toEqual([1, 'again', 2]);
    expect(asked).toBe(6);
  });
});

describe('a stream with ids is given up', () => {
  test('after five resumes without a new id', async () => {
    const pair = await start([cutAfter(`retry: 1\n${numbered(1)}`), cutAfter('data: {"half')]);
    const { events, error } = await readAll(pair.client.send('hi'));
    expect(dataOf(events)).toEqual([1]);
    expect(error).toMatchObject({ name: 'RelayError', code: 'connection_lost' });
    expect(lastEventIds(pair)).toEqual([[], ...Array(5).fill(['1'])]);
  });

  test('but not before, as long as new ids come', async () => {
    let id = 0;
    const pair = await start([
      (socket) => (++id === 9 ? whole(numbered(id)) : cutAfter(`retry: 1\n${numbered(id)}`))(socket),
    ]);
    const { events, error } = await readAll(pair.client.send('hi'));
    expect(error).toBeUndefined();
    expect(dataOf(events)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  test('if the service only begins anew each time', async () => {
    const pair = await start([cutAfter(`retry: 1\n${numbered(1, 2)}`)]);
    const { error } = await readAll(pair.client.send('hi'));
    expect(error).toMatchObject({ code: 'connection_lost' });
    expect(pair.upstream.requests).toHaveLength(6);
  });

  test('some time, if it has new ids for ever', async () => {
    let id = 0;
    const pair = await start([(socket) => cutAfter(`retry: 1\n${numbered(++id)}`)(socket)]);
    const { error } = await readAll(pair.client.send('hi'));
    expect(error).toMatchObject({ code: 'connection_lost' });
    expect(pair.upstream.requests).toHaveLength(51);
  });

  test('when the relay refuses it for good: the session is over', async () => {
    let isSignedIn = true;
    let asked = 0;
    const pair = await start(
      [cutAfter(`retry: 1\n${numbered(1)}`)],
      {},
      {
        fetch: (url, init) => {
          const headers = new Headers(init?.headers);
          if (String(url).includes('/generic/')) asked++;
          if (!isSignedIn) headers.delete('Cookie');
          return fetch(url, { ...init, headers });
        },
      },
    );
    const signOuts = countSignOuts(pair.client);
    const { error } = await readAll(pair.client.send('hi'), () => {
      isSignedIn = false;
    });
    expect(error).toMatchObject({ code: 'unauthenticated', status: 401 });
    expect(signOuts()).toBe(1);
    expect(asked).toBe(2);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('when somebody has signed in anew before it could be resumed: it is nothing for them', async () => {
    const pair = await start([cutAfter(`retry: 1\n${numbered(1)}`), whole(numbered(2))]);
    const signOuts = countSignOuts(pair.client);
    const { events, error } = await readAll(pair.client.send('hi'), () =>
      pair.client.signIn(OTHER_USER.name, OTHER_USER.password),
    );
    expect(dataOf(events)).toEqual([1]);
    expect(error).toMatchObject({ code: 'session_ended', status: 401 });
    expect(pair.upstream.requests).toHaveLength(1);
    expect(signOuts()).toBe(0);
  });

  test('when an empty id has taken the others back', async () => {
    const pair = await start([cutAfter(`retry: 1\n${numbered(1)}id\ndata: 2\n\n`)]);
    const { events, error } = await readAll(pair.client.send('hi'));
    expect(dataOf(events)).toEqual([1, 2]);
    expect(error).toMatchObject({ code: 'connection_lost' });
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test.each(['abort', 'break'])('when its reader has left by %s', async (way) => {
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
    // Until another has been resumed, after a longer pause, the first would have been.
    await readAll(pair.client.send('another'));
    const texts = pair.upstream.requests.map(({ body }) => JSON.parse(String(body)).text);
    expect(texts).toEqual(['left', 'another', 'another']);
  });
});
