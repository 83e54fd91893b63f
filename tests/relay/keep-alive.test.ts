import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type Pair, startPair } from '../support/pair.ts';
import { chunk, LAST_CHUNK } from '../support/raw-upstream.ts';

let pair: Pair;
afterEach(() => pair.close());

/** An upstream that answers in full, with these header lines, and keeps its connections. */
async function start(...headers: string[]) {
  const head = [
    'HTTP/1.1 200 OK',
    'Content-Type: text/event-stream',
    'Transfer-Encoding: chunked',
    ...headers,
  ];
  const answer = Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), chunk('data: a\n\n')]);
  pair = await startPair((socket) => socket.write(Buffer.concat([answer, Buffer.from(LAST_CHUNK)])));
}

async function send() {
  expect(await (await pair.relay.send(pair.cookie)).text()).toBe('data: a\n\n');
}

/** What comes first at the idle upstream connection: the relay's FIN, or the service's own timer. */
function firstToClose(ms: number): Promise<'relay' | 'service'> {
  const [socket] = pair.upstream.sockets as [Socket];
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve('service'), ms);
    socket.on('end', () => {
      clearTimeout(timer);
      resolve('relay');
    });
  });
}

describe('an idle connection to the bot service', () => {
  test('is kept for the next message', async () => {
    await start();
    await send();
    await send();
    expect(pair.upstream.sockets).toHaveLength(1);
    expect(pair.upstream.requests).toHaveLength(2);
  });

  test('is kept for a while', async () => {
    await start();
    await send();
    expect(await firstToClose(1500)).toBe('service');
    await send();
    expect(pair.upstream.sockets).toHaveLength(1);
  });

  test('is dropped by the relay before a service that closes after 5 s would do so', async () => {
    await start();
    await send();
    expect(await firstToClose(5000)).toBe('relay');
  }, 10_000);

  test('is dropped earlier where the service announces a shorter time', async () => {
    await start('Keep-Alive: timeout=2');
    await send();
    expect(await firstToClose(2000)).toBe('relay');
  });

  test('is not kept where the announced time leaves none, and no message is lost', async () => {
    await start('Keep-Alive: timeout=1');
    await send();
    expect(await firstToClose(900)).toBe('relay');
    await send();
    await send();
    expect(pair.upstream.sockets).toHaveLength(3);
    expect(pair.upstream.requests).toHaveLength(3);
  });
});
