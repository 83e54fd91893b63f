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
  /**
   * Holds back what one side sends, from the next bytes of the relay on that have this text: with `relay` these bytes and
   * all after them, with `redis` the answers to them.
   */
  hold(by: Sent['by'], text: string): Hold;
  /** Writes down, from now on, what is sent; returns the list, which grows. */
  record(): readonly Sent[];
  close(): void;
}

/** What a proxy holds back. */
export interface Hold {
  /** Resolves once there is something that is held back. */
  readonly begun: Promise<void>;
  /** Lets it pass, and all that comes after it. */
  release(): void;
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
  let gate: ReturnType<typeof gateFor> | undefined;
  const add = (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
  };
  const server = createServer({ noDelay: true }, (relay) => {
    add(relay);
    if (isCut) return void relay.destroy();
    const redis = connect({ port, host: '127.0.0.1', noDelay: true });
    add(redis);
    relay.on('data', (data) => {
      gate?.open(data.toString('latin1'));
      pass(gate, 'relay', () => void redis.write(data));
    });
    relay.on('close', () => redis.destroy());
    redis.on('close', () => relay.destroy());
    relay.on('data', write('relay'));
    redis.on('data', write('redis'));
    // In order: a faster answer must not overtake a slower one.
    let sent = Promise.resolve();
    redis.on('data', (data) => {
      const due = sleep(delayMs);
      sent = sent.then(() => due).then(() => pass(gate, 'redis', () => void relay.write(data)));
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
    hold(by, text) {
      const own = gateFor(by, text);
      gate = own;
      return {
        begun: own.begun.promise,
        release() {
          gate = undefined;
          for (const send of own.held.splice(0)) send();
        },
      };
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

/** Holds back what `by` sends, once the relay has sent `text`. */
function gateFor(by: Sent['by'], text: string) {
  const begun = Promise.withResolvers<void>();
  const gate = { by, begun, held: [] as (() => void)[], isShut: false };
  return {
    ...{ begun, held: gate.held },
    open(sent: string) {
      gate.isShut ||= sent.includes(text);
    },
    holds: (side: Sent['by']) => gate.isShut && side === gate.by,
  };
}

function pass(gate: ReturnType<typeof gateFor> | undefined, side: Sent['by'], send: () => void): void {
  if (gate?.holds(side)) {
    gate.held.push(send);
    gate.begun.resolve();
  } else send();
}
