import { EventEmitter } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { connectionBounds } from '../../src/arrive/connection-bounds.ts';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const PROBE = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n';
const READINESS = 'GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n';
const OK = '{"status":"ok"}';

/** A connection that is open, by the rules of the bounds. */
interface Held {
  readonly socket: Socket;
  readonly address: string;
  readonly isReserved: boolean;
  /** When it became idle; it is in use if there is none. */
  idleSince: number | undefined;
}
/** What the bounds need of a connection. */
function fakeSocket(remoteAddress: string): Socket {
  const socket = Object.assign(new EventEmitter(), {
    remoteAddress,
    destroyed: false,
    destroy() {
      if (socket.destroyed) return;
      socket.destroyed = true;
      socket.emit('close');
    },
  });
  return socket as unknown as Socket;
}

test('whatever comes, over a bound the connection that has been idle for longest is closed, else the new one is reserved or refused', () => {
  const [MOST, OF_ADDRESS, RESERVED] = [3, 2, 16];
  const step = fc.record({
    kind: fc.constantFrom('take', 'take', 'take', 'use', 'idle', 'close'),
    address: fc.integer({ min: 1, max: 15 }).map((n) => `192.0.2.${n}`),
    which: fc.nat(),
  });
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 80, size: 'max' }), (steps) => {
      const refused: string[] = [];
      const limits = { most: MOST, mostOfAddress: OF_ADDRESS };
      const bounds = connectionBounds({ ...limits, onRefused: (by) => refused.push(by) });
      let held: Held[] = [];
      const sockets: Socket[] = [];
      for (const [now, { kind, address, which }] of steps.entries()) {
        const one = held[which % held.length];
        if (kind === 'take') {
          const before = refused.length;
          /** Whether one of these may be added, for which the one that has been idle for longest is closed. */
          const hasRoom = (isOne: (one: Held) => boolean, most: number) => {
            const all = held.filter(isOne);
            if (all.length < most) return true;
            const idle = all.filter(({ idleSince }) => idleSince !== undefined);
            const [oldest] = idle.sort((a, b) => (a.idleSince ?? 0) - (b.idleSince ?? 0));
            held = held.filter((each) => each !== oldest);
            return oldest !== undefined;
          };
          const expected = !hasRoom((each) => each.address === address, OF_ADDRESS)
            ? 'address'
            : hasRoom((each) => !each.isReserved, MOST)
              ? 'usual'
              : hasRoom((each) => each.isReserved, RESERVED)
                ? 'reserved'
                : 'instance';
          const socket = fakeSocket(address);
          const isTaken = bounds.take(socket);
          const kindTaken = bounds.isReserved(socket) ? 'reserved' : 'usual';
          expect(isTaken ? kindTaken : refused[before]).toBe(expected);
          if (isTaken) held.push({ socket, address, isReserved: expected === 'reserved', idleSince: now });
          sockets.push(socket);
        } else if (one && kind === 'close') {
          held.splice(held.indexOf(one), 1);
          one.socket.destroy();
        } else if (one) {
          bounds.setIdle(one.socket, kind === 'idle');
          one.idleSince = kind === 'idle' ? (one.idleSince ?? now) : undefined;
        }
        const open = sockets.filter(({ destroyed }) => !destroyed);
        expect(new Set(open)).toEqual(new Set(held.map(({ socket }) => socket)));
      }
    }),
    { numRuns: 300 },
  );
});

let pair: RelayAndUpstream;
const clients: RawClient[] = [];
afterEach(async () => {
  for (const { socket } of clients.splice(0)) socket.destroy();
  await pair?.close();
});

/** A relay in front of a service whose streams begin and stay open. The connection of its sign-in is idle. */
async function start(environment: Record<string, string>) {
  pair = await startRelayAndUpstream(
    (socket) => void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])),
    { METRICS_PORT: '9090', ...environment },
  );
}

function open(bytes: string): RawClient {
  const client = rawClient(pair.relay.port, bytes);
  clients.push(client);
  return client;
}

async function openIdle(): Promise<RawClient> {
  const client = open(PROBE);
  await client.waitFor(OK);
  return client;
}

/** Each with a message of its own. */
async function openStream(): Promise<RawClient> {
  const body = JSON.stringify({ text: `message ${clients.length}` });
  const client = open(rawMessage({ cookie: pair.cookie, body }));
  await client.waitFor('data: 1\n\n');
  return client;
}

/** Asks once more on a connection that is open; resolves with what has come since. */
async function askAgain(client: RawClient): Promise<string> {
  const before = client.text().length;
  client.socket.write(PROBE);
  await until(() => client.text().slice(before).includes(OK));
  return client.text().slice(before);
}

const refusedConnections = async (reason: string) =>
  total(await pair.relay.metricsText(), 'bot_relay_connections_refused_total', { reason });

describe('with as many connections as MAX_CONNECTIONS', () => {
  const BEHIND_PROXY = { TRUST_PROXY: '1' };

  test('the one that has been idle for longest is closed for a new one', async () => {
    await start({ ...BEHIND_PROXY, MAX_CONNECTIONS: '3' });
    const [first, second, third] = [await openIdle(), await openIdle(), await openIdle()];
    await askAgain(first);
    await askAgain(third);
    await openIdle();
    await second.closed;
    expect(await askAgain(third)).toContain(' 200 OK');
    expect(await askAgain(first)).toContain(' 200 OK');
  });

  test('of which all are in use, probes are answered, everything else is refused, and streams go on', async () => {
    await start({ ...BEHIND_PROXY, MAX_CONNECTIONS: '2' });
    const streams = [await openStream(), await openStream()];
    for (const probe of [PROBE, READINESS]) {
      const client = open(probe);
      await client.closed;
      expect(parseAnswer(client.text())).toMatchObject({ status: 200, headers: { connection: 'close' } });
    }
    const refused = open(rawMessage({ cookie: pair.cookie }));
    await refused.closed;
    const answer = parseAnswer(refused.text());
    expectProblem(answer, 503, 'busy', { retryable: 'new message' });
    expect(answer.headers).toMatchObject({ connection: 'close', 'retry-after': '1' });
    expect(pair.upstream.requests).toHaveLength(2);
    expect(await pair.relay.logLine(({ outcome }) => outcome === 'busy')).toMatchObject({ status: 503 });
    for (const socket of pair.upstream.sockets) socket.write(chunk('data: 2\n\n'));
    for (const stream of streams) await stream.waitFor('data: 2\n\n');
    streams[0]?.socket.destroy();
    await until(async () => {
      const client = open(rawMessage({ cookie: pair.cookie }));
      return client.waitFor('data: 1\n\n').then(
        () => true,
        () => false,
      );
    });
  });

  test('a flood of silent ones closes its own before a probe', async () => {
    await start({ ...BEHIND_PROXY, MAX_CONNECTIONS: '1' });
    await openStream();
    const silent = Array.from({ length: 40 }, () => open(''));
    await Promise.race(silent.map(({ closed }) => closed));
    const client = open(PROBE);
    await client.closed;
    expect(client.text()).toContain(OK);
  });
});

describe('without a trusted proxy', () => {
  test('one address gets a quarter of the connections, and others are served', async () => {
    await start({ MAX_CONNECTIONS: '8' });
    await openStream();
    const idle = await openIdle();
    await openStream();
    await idle.closed;
    const refused = open(PROBE);
    await refused.closed;
    expect(refused.text()).toBe('');
    const line = await pair.relay.logLine(({ msg }) => msg === 'connections refused');
    expect(line).toMatchObject({ level: 'warn', cause: 'address', refused: 1 });
    expect(await refusedConnections('address')).toBe(1);
    const other = connect({ port: pair.relay.port, host: '127.0.0.1', localAddress: '127.0.0.2' });
    other.write(PROBE);
    let answer = '';
    for await (const part of other) {
      answer += String(part);
      if (answer.includes(OK)) break;
    }
    expect(answer).toContain(' 200 OK');
  });
});

test('an idle connection is closed after KEEP_ALIVE_MS', async () => {
  await start({ KEEP_ALIVE_MS: '1' });
  const client = await openIdle();
  expect(await client.closed).toEqual({ error: undefined });
});
