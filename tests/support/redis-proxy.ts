import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { sleep } from './sleep.ts';

/** A TCP proxy in front of Redis that a test can cut or slow down. */
export interface RedisProxy {
  readonly url: string;
  /** Closes all connections, and new ones at once, until `mend`. */
  cut(): void;
  mend(): void;
  /** Delays the answers of Redis from now on by so many ms. */
  slowDown(ms: number): void;
  /** Writes down, from now on, what is sent; returns the list, which grows. */
  record(): readonly Sent[];
  close(): void;
}

/** Bytes as they were read at once. */
export interface Sent {
  readonly by: 'relay' | 'redis';
  readonly text: string;
}

/** Listens on a free loopback port and forwards everything to the Redis at `target`. */
export async function startRedisProxy(target: string): Promise<RedisProxy> {
  const port = Number(new URL(target).port);
  const sockets = new Set<Socket>();
  let isCut = false;
  let delayMs = 0;
  let written: Sent[] | undefined;
  const write = (by: Sent['by']) => (data: Buffer) =>
    void written?.push({ by, text: data.toString('latin1') });
  const add = (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
  };
  const server = createServer({ noDelay: true }, (relay) => {
    add(relay);
    if (isCut) return void relay.destroy();
    const redis = connect({ port, host: '127.0.0.1', noDelay: true });
    add(redis);
    relay.on('data', (data) => redis.write(data)).on('close', () => redis.destroy());
    redis.on('close', () => relay.destroy());
    relay.on('data', write('relay'));
    redis.on('data', write('redis'));
    // In order: a faster answer must not overtake a slower one.
    let sent = Promise.resolve();
    redis.on('data', (data) => {
      const due = sleep(delayMs);
      sent = sent.then(() => due).then(() => void relay.write(data));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const destroyAll = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut() {
      isCut = true;
      destroyAll();
    },
    mend() {
      isCut = false;
    },
    slowDown(ms) {
      delayMs = ms;
    },
    record() {
      written = [];
      return written;
    },
    close() {
      destroyAll();
      server.close();
    },
  };
}
