import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../support/call.ts';
import { rawClient, rawMessage } from '../support/raw-client.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../support/raw-upstream.ts';
import { OTHER_USER } from '../support/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';

let pair: RelayAndUpstream;
let answer: string;
beforeEach(async () => {
  answer = STREAM_HEAD;
  pair = await startRelayAndUpstream((socket) => socket.write(answer), { MAX_STREAMS_PER_USER: '2' });
});
afterEach(() => pair.close());

let messages = 0;
/** Sends a message; resolves when the head of the answer has arrived. */
async function send(as = pair.cookie) {
  const id = `message-number-${++messages}`;
  const client = pair.ask({ cookie: as, headers: [`X-Request-Id: ${id}`] });
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
    const leaving = pair.ask({ headers: ['X-Request-Id: left-waiting-1'] });
    await pair.upstream.nextRequest();
    pair.ask();
    await pair.upstream.nextRequest();
    await expectFull();
    leaving.socket.destroy();
    await pair.relay.logLine(({ requestId }) => requestId === 'left-waiting-1');
    answer = STREAM_HEAD;
    expect((await send()).status).toBe(200);
    await expectFull();
  });

  test('has a place for a message whose body still arrives', async () => {
    await send();
    const headers = ['Expect: 100-continue', 'Content-Length: 13'];
    const whole = rawMessage({ cookie: pair.cookie, body: '', headers }).replace('Content-Length: 0\r\n', '');
    const uploading = rawClient(pair.relay.port, `${whole}{"text"`);
    await uploading.waitFor('100 Continue\r\n\r\n');
    await expectFull();
    uploading.socket.write(':"hi"}');
    await uploading.waitFor('200 OK');
    expect(pair.upstream.requests.at(-1)?.body.toString()).toBe('{"text":"hi"}');
    uploading.socket.destroy();
  });

  test('gets its place back from a message that failed', async () => {
    answer = 'HTTP/1.1 204 No Content\r\n\r\n';
    for (let n = 0; n < 3; n += 1) {
      const { status, over } = await send();
      expect(status).toBe(502);
      await over();
    }
  });
});

test('a client that leaves while its place is requested keeps none, and its message is not sent', async () => {
  const { streams } = pair.relay;
  const acquire = streams.acquire.bind(streams);
  let answerNow: (() => void) | undefined;
  streams.acquire = async (holder, max) => {
    const lease = await acquire(holder, max);
    await new Promise<void>((resolve) => {
      answerNow = resolve;
    });
    return lease;
  };
  const client = pair.ask({ headers: ['X-Request-Id: left-asking-1'] });
  await until(() => answerNow !== undefined);
  client.socket.destroy();
  await pair.relay.logLine(({ requestId }) => requestId === 'left-asking-1');
  streams.acquire = acquire;
  answerNow?.();
  await sleep(20);
  expect(pair.upstream.requests).toHaveLength(0);
  expect([(await send()).status, (await send()).status]).toEqual([200, 200]);
  await expectFull();
});
