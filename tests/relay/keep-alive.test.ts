import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK } from '../harness/service/raw-upstream.ts';

const opened: RelayAndUpstream[] = [];
beforeEach(stopClock);
afterEach(() => Promise.all(opened.splice(0).map((pair) => pair.close())));

interface Kept extends RelayAndUpstream {
  send(): Promise<void>;
  /** Resolves when the relay has closed the first connection. */
  closed(): Promise<void>;
}

/** Starts an upstream that answers completely, with these headers, and keeps its connections open. */
async function start(...headers: string[]): Promise<Kept> {
  const head = [
    'HTTP/1.1 200 OK',
    'Content-Type: text/event-stream',
    'Transfer-Encoding: chunked',
    ...headers,
  ];
  const answer = Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), chunk('data: a\n\n')]);
  const pair = await startRelayAndUpstream((socket) =>
    socket.write(Buffer.concat([answer, Buffer.from(LAST_CHUNK)])),
  );
  opened.push(pair);
  return {
    ...pair,
    async send() {
      expect(await (await pair.relay.send(pair.cookie)).text()).toBe('data: a\n\n');
    },
    closed: () => until(() => pair.upstream.sockets[0]?.readableEnded === true),
  };
}

test('an idle connection to the bot service is kept for the next message, for a while', async () => {
  const { send, upstream } = await start();
  await send();
  pass(3_999);
  await send();
  expect(upstream.sockets).toHaveLength(1);
  expect(upstream.requests).toHaveLength(2);
});

test.each([
  ['before a service closes it after 5 s', [], 4_000],
  ['earlier if the service announces a shorter time', ['Keep-Alive: timeout=2'], 1_000],
  ['at once if the announced time is too short', ['Keep-Alive: timeout=1'], 0],
])('an idle connection to the bot service is closed by the relay %s', async (_when, headers, ms) => {
  const { send, upstream, closed } = await start(...headers);
  await send();
  pass(ms);
  await closed();
  await send();
  expect(upstream.sockets).toHaveLength(2);
  expect(upstream.requests).toHaveLength(2);
});
