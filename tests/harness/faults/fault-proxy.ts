import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';

/** Who sends: the one that has connected to the proxy, or the one behind it. */
export type Side = 'client' | 'server';

/** Bytes as they were read at once. */
export interface Sent {
  readonly by: Side;
  readonly text: string;
}

/** What a proxy holds back. */
export interface Hold {
  /** Resolves once there is something that is held back. */
  readonly begun: Promise<void>;
  /** Lets it pass, and all that comes after it. */
  release(): void;
}

/** A TCP proxy between any two parts, whose connections a test can break. */
export interface FaultProxy {
  readonly port: number;
  /** The address of the proxy, otherwise as the target's. */
  readonly url: string;
  /** Closes all connections, and new ones at once, until `mend`. */
  cut(): void;
  mend(): void;
  /** Closes the next connection to which the server sends more than so many bytes, behind the last of them. */
  cutAfter(bytes: number): void;
  /** Delays what the server sends from now on by so many ms. */
  delay(ms: number): void;
  /**
   * Holds back what one side sends, from the next bytes of the client on that have this text: with `client` these bytes
   * and all after them, with `server` the answers to them.
   */
  hold(by: Side, text: string): Hold;
  /** Writes down, from now on, what is sent; returns the list, which grows. */
  record(): readonly Sent[];
  close(): void;
}

type Pair = Readonly<Record<Side, Socket>>;

/** Listens on a free loopback port and forwards everything to the port of `target`, on this machine. */
export async function faultProxy(target: string | URL): Promise<FaultProxy> {
  const url = new URL(target);
  const port = Number(url.port);
  const pairs = new Set<Pair>();
  let isCut = false;
  let delayMs = 0;
  let bytesLeft = Infinity;
  let written: Sent[] | undefined;
  let gate: ReturnType<typeof gateFor> | undefined;

  function answer({ client, server }: Pair, bytes: Buffer): void {
    client.write(bytes.subarray(0, bytesLeft));
    bytesLeft -= bytes.length;
    if (bytesLeft >= 0) return;
    bytesLeft = Infinity;
    client.destroySoon();
    server.destroy();
  }

  function carry(pair: Pair, by: Side): void {
    const [from, to] = by === 'client' ? [pair.client, pair.server] : [pair.server, pair.client];
    // In order: what is delayed less must not overtake the rest.
    let last: Promise<unknown> = Promise.resolve();
    from.on('data', (bytes: Buffer) => {
      const text = bytes.toString('latin1');
      written?.push({ by, text });
      if (by === 'client') gate?.see(text);
      const delayed = by === 'server' && delayMs > 0 ? wait(delayMs, undefined, { ref: false }) : undefined;
      const held = gate?.holds(by) ? gate.hold() : undefined;
      last = last.then(async () => {
        await delayed;
        await held;
        if (by === 'server') answer(pair, bytes);
        else to.write(bytes);
      });
    });
    from.on('end', () => void last.then(() => to.end()));
    from.on('error', () => {});
    from.on('close', () => {
      pairs.delete(pair);
      void last.then(() => to.destroySoon());
    });
  }

  const server = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
    if (isCut) return void client.destroy();
    const options = { port, host: '127.0.0.1', noDelay: true, allowHalfOpen: true };
    const pair = { client, server: connect(options) };
    pairs.add(pair);
    carry(pair, 'client');
    carry(pair, 'server');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  url.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;

  function cut(): void {
    isCut = true;
    for (const { client, server } of pairs) {
      client.destroy();
      server.destroy();
    }
  }

  return {
    port: Number(url.port),
    url: url.href,
    cut,
    mend() {
      isCut = false;
    },
    cutAfter(bytes) {
      bytesLeft = bytes;
    },
    delay(ms) {
      delayMs = ms;
    },
    hold(by, text) {
      const own = gateFor(by, text);
      gate = own;
      return {
        begun: own.begun.promise,
        release() {
          gate = undefined;
          own.released.resolve();
        },
      };
    },
    record() {
      written = [];
      return written;
    },
    close() {
      cut();
      server.close();
    },
  };
}

/** Holds back what `by` sends, once the client has sent `text`. */
function gateFor(by: Side, text: string) {
  const begun = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  let isShut = false;
  return {
    begun,
    released,
    see(sent: string): void {
      isShut ||= sent.includes(text);
    },
    holds: (side: Side) => isShut && side === by,
    hold(): Promise<void> {
      begun.resolve();
      return released.promise;
    },
  };
}
