import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { expectErrorEvent } from '../harness/clients/error-event.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { OTHER_USER } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
let answer: string;
beforeEach(async () => {
  answer = STREAM_HEAD;
  // A run that nobody reads is over at once.
  const environment = { MAX_STREAMS_PER_USER: '2', JOIN_GRACE_MS: '0' };
  pair = await startRelayAndUpstream((socket) => socket.write(answer), environment);
});
afterEach(() => pair.close());

let messages = 0;
/** Each is a message of its own: the same bytes would join its run. */
const nextBody = () => JSON.stringify({ text: `hi ${++messages}` });
/** Sends a message; resolves when the head of the answer has arrived. */
async function send(as = pair.cookie) {
  const body = nextBody();
  const id = `message-number-${messages}`;
  const client = pair.ask({ cookie: as, body, headers: [`X-Request-Id: ${id}`] });
  await client.waitFor('\r\n\r\n');
  const over = () => pair.relay.logLine(({ requestId }) => requestId === id);
  return { client, status: parseAnswer(client.text()).status, over };
}

async function expectFull() {
  const { client, status } = await send();
  expect(status).toBe(429);
  await client.waitFor('"}');
  expectProblem(parseAnswer(client.text()), 429, 'too_many_streams');
  expect(parseAnswer(client.text()).headers['retry-after']).toBe('1');
}

describe('a user', () => {
  test('may have the allowed number of open streams, and another user too', async () => {
    expect([(await send()).status, (await send()).status]).toEqual([200, 200]);
    await expectFull();
    await expectFull();
    expect(pair.upstream.sockets).toHaveLength(2);
    expect((await send(await pair.relay.signIn(OTHER_USER))).status).toBe(200);
  });

  test('gets exactly one place back from a stream that ended', async () => {
    const first = await send();
    await send();
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await first.over();
    expect((await send()).status).toBe(200);
    await expectFull();
  });

  test('gets all of its places back once all of its streams have ended', async () => {
    const streams = [await send(), await send()];
    for (const { client } of streams) client.socket.destroy();
    for (const { over } of streams) await over();
    expect([(await send()).status, (await send()).status]).toEqual([200, 200]);
    await expectFull();
  });

  test('gets its place back from a stream whose client left', async () => {
    await send();
    const { client, over } = await send();
    client.socket.destroy();
    await over();
    expect((await send()).status).toBe(200);
    await expectFull();
  });

  test('gets its place back from a message whose client left before it was answered', async () => {
    answer = '';
    const leaving = pair.ask({ body: nextBody(), headers: ['X-Request-Id: left-waiting-1'] });
    await pair.upstream.nextRequest();
    pair.ask({ body: nextBody() });
    await pair.upstream.nextRequest();
    await expectFull();
    leaving.socket.destroy();
    await pair.relay.logLine(({ requestId }) => requestId === 'left-waiting-1');
    answer = STREAM_HEAD;
    expect((await send()).status).toBe(200);
    await expectFull();
  });

  test('needs no place for a message whose body still arrives', async () => {
    await send();
    const headers = ['Expect: 100-continue', 'Content-Length: 13'];
    const whole = rawMessage({ cookie: pair.cookie, body: '', headers }).replace('Content-Length: 0\r\n', '');
    const uploading = rawClient(pair.relay.port, `${whole}{"text"`);
    await uploading.waitFor('100 Continue\r\n\r\n');
    expect((await send()).status).toBe(200);
    await expectFull();
    uploading.socket.write(':"hi"}');
    await uploading.waitFor('"}');
    expectProblem(
      parseAnswer(uploading.text().split('100 Continue\r\n\r\n')[1] ?? ''),
      429,
      'too_many_streams',
    );
    expect(pair.upstream.requests).toHaveLength(2);
  });

  test('gets its place back from a message that failed', async () => {
    answer = 'HTTP/1.1 204 No Content\r\n\r\n';
    for (let n = 0; n < 3; n += 1) {
      const { client, over } = await send();
      await client.waitFor('}\n\n');
      const failure = { maybeStarted: true, retryable: false } as const;
      expectErrorEvent(parseAnswer(client.text()), 502, 'upstream_bad_response', failure);
      await over();
    }
  });
});

test('a client that leaves while its place is requested keeps none, and its message is not sent', async () => {
  const { streams } = pair.relay;
  const acquire = streams.acquire.bind(streams);
  let answerNow: (() => void) | undefined;
  let released = false;
  streams.acquire = async (holder, max) => {
    const lease = await acquire(holder, max);
    await new Promise<void>((resolve) => {
      answerNow = resolve;
    });
    return (
      lease && {
        release() {
          lease.release();
          released = true;
        },
      }
    );
  };
  const client = pair.ask({ headers: ['X-Request-Id: left-asking-1'] });
  await until(() => answerNow !== undefined);
  client.socket.destroy();
  await pair.relay.logLine(({ requestId }) => requestId === 'left-asking-1');
  streams.acquire = acquire;
  answerNow?.();
  // Until its place is given back.
  await until(() => released);
  expect([(await send()).status, (await send()).status]).toEqual([200, 200]);
  expect(pair.upstream.requests).toHaveLength(2);
  await expectFull();
});
