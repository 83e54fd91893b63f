import type { Socket } from 'node:net';
import { afterAll, expect } from '@jest/globals';
import { chunk, LAST_CHUNK } from '../support/raw-upstream.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../support/relay-and-upstream.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { whileAwake } from '../support/while-awake.ts';

const opened: RelayAndUpstream[] = [];
afterAll(() => Promise.all(opened.map((pair) => pair.close())));

interface Kept extends RelayAndUpstream {
  send(): Promise<void>;
  /** Who closes the first upstream connection, idle now: the relay, or the service after `ms`. */
  firstToClose(ms: number): Promise<'relay' | 'service'>;
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
    firstToClose: (ms) => firstToClose(pair.upstream.sockets[0] as Socket, ms),
  };
}

function firstToClose(socket: Socket, ms: number): Promise<'relay' | 'service'> {
  return new Promise((resolve) => {
    // The relay may have closed it before the client has got the answer.
    if (socket.readableEnded) return resolve('relay');
    const timer = setTimeout(() => resolve('service'), ms);
    socket.on('end', () => {
      clearTimeout(timer);
      resolve('relay');
    });
  });
}

testSideBySide([
  [
    'an idle connection to the bot service is kept for the next message',
    async () => {
      const { send, upstream } = await start();
      await send();
      await send();
      expect(upstream.sockets).toHaveLength(1);
      expect(upstream.requests).toHaveLength(2);
    },
  ],
  [
    'an idle connection to the bot service is kept for a while',
    whileAwake(async () => {
      const { send, upstream, firstToClose } = await start();
      await send();
      expect(await firstToClose(1500)).toBe('service');
      await send();
      expect(upstream.sockets).toHaveLength(1);
    }),
  ],
  [
    'an idle connection to the bot service is closed by the relay before a service closes it after 5 s',
    whileAwake(async () => {
      const { send, firstToClose } = await start();
      await send();
      expect(await firstToClose(5000)).toBe('relay');
    }),
  ],
  [
    'an idle connection to the bot service is closed earlier if the service announces a shorter time',
    whileAwake(async () => {
      const { send, firstToClose } = await start('Keep-Alive: timeout=2');
      await send();
      expect(await firstToClose(2000)).toBe('relay');
    }),
  ],
  [
    'an idle connection is not kept if the announced time is too short, and no message is lost',
    whileAwake(async () => {
      const { send, upstream, firstToClose } = await start('Keep-Alive: timeout=1');
      await send();
      expect(await firstToClose(900)).toBe('relay');
      await send();
      await send();
      expect(upstream.sockets).toHaveLength(3);
      expect(upstream.requests).toHaveLength(3);
    }),
  ],
]);
