import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A wire to Redis that a test can cut or make slow. */
export interface RedisWire {
  readonly url: string;
  /** Closes what is connected, and whatever connects from then on. */
  cut(): void;
  mend(): void;
  /** From now on, what Redis says comes so many ms later. */
  slowDown(ms: number): void;
  close(): void;
}

/** Listens on a free loopback port and passes everything on to the Redis at `target`. */
export async function redisWire(target: string): Promise<RedisWire> {
  const port = Number(new URL(target).port);
  const sockets = new Set<Socket>();
  let isCut = false;
  let delayMs = 0;
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
    // One after the other: what is faster must not overtake what was slow.
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
    close() {
      destroyAll();
      server.close();
    },
  };
}
