import { connect, createServer, type Server, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, expect, test } from '@jest/globals';
import { fieldClient } from '../harness/clients/field-client.ts';
import { DONE, EVENTS, INIT, type JoinPair, startJoinPair } from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  describeWithNginx,
  type LoadBalancer,
  startNginx,
} from '../harness/relay/deployed-load-balancers.ts';
import { type JoinInstances, runsEnded, startJoinInstances } from '../harness/relay/join-instances.ts';
import { stopPrograms } from '../harness/relay/programs.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { chunk, LAST_CHUNK } from '../harness/service/raw-upstream.ts';

/** As often as an old client sends again. */
const CUTS = 3;

const NUMBERS = EVENTS.map((event) => JSON.parse(event.slice(event.indexOf('{'))).n as number);

interface CutClient {
  /** So many events come before each cut. */
  readonly events: number;
  /** Opens a connection to a relay, or to what stands before it; the first has the number 0. */
  readonly open: (connection: number) => Socket;
  readonly cookie: string;
  readonly relays: readonly TestRelay[];
  /** The bot service's end of the stream. It has sent the first event. */
  readonly socketOf: () => Socket | undefined;
}

/** Lets an old client lose its connection again and again, and expects the whole answer of one run. */
async function expectWholeAnswer({ events, open, cookie, relays, socketOf }: CutClient): Promise<void> {
  const { front, url } = await startCuttingFront(events, open);
  try {
    const joins = () => relays.flatMap(({ logs }) => logs.filter(({ msg }) => msg === 'run joined')).length;
    const before = joins();
    const received = fieldClient({ url, cookie, retries: 'always' });
    await until(() => socketOf() !== undefined);
    for (const event of EVENTS.slice(1, -1)) {
      await new Promise((resolve) => setTimeout(resolve, 30));
      socketOf()?.write(chunk(event));
    }
    await until(() => joins() - before === CUTS);
    socketOf()?.write(Buffer.concat([chunk(DONE), Buffer.from(LAST_CHUNK)]));
    const { data, error } = await received;
    expect(error).toBeUndefined();
    const seen = [1, 2, 3].flatMap(() => NUMBERS.slice(0, events));
    expect(data.map(({ n }) => n)).toEqual([...seen, ...NUMBERS]);
  } finally {
    front.close();
  }
}

/** Passes connections on, and cuts the first `CUTS` behind `events` events of the answer. */
async function startCuttingFront(
  events: number,
  open: CutClient['open'],
): Promise<{ readonly front: Server; readonly url: string }> {
  let connections = 0;
  const front = createServer((client) => {
    const relay = open(connections);
    const isCut = ++connections <= CUTS;
    let seen = '';
    client.pipe(relay);
    relay.on('data', (data) => {
      const before = seen.length;
      seen += data.toString('latin1');
      const end = isCut ? endOf(seen, events) : -1;
      client.write(end < 0 ? data : data.subarray(0, Math.max(0, end - before)));
      if (end >= 0) client.destroySoon();
    });
    relay.on('close', () => client.destroy());
    client.on('close', () => relay.destroy());
    for (const socket of [client, relay]) socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
  return { front, url: `http://127.0.0.1:${(front.address() as { port: number }).port}` };
}

/** Where the head and `events` events of an answer end; -1 if they have not come. */
function endOf(answer: string, events: number): number {
  let at = answer.indexOf('\r\n\r\n') < 0 ? -1 : answer.indexOf('\r\n\r\n') + 4;
  for (let n = 0; n < events && at >= 0; n++) {
    const blankLine = answer.indexOf('\n\n', at);
    at = blankLine < 0 ? -1 : blankLine + 2;
  }
  return at;
}

let pair: JoinPair | JoinInstances;
afterEach(async () => {
  await stopPrograms();
  await pair.close();
});

/** Connects to the relays by turns. */
const byTurns = (relays: readonly TestRelay[]) => (connection: number) =>
  connect((relays[connection % relays.length] as TestRelay).port, '127.0.0.1');

test.each([0, 1, 2, 3, 4])(
  'an old client whose connection is cut three times after %i events gets the whole answer of one run',
  async (events) => {
    let socket: Socket | undefined;
    const started = await startJoinPair({}, (_request, service) => {
      socket = service;
      return [INIT];
    });
    pair = started;
    const relays = [started.relay];
    const { cookie, upstream } = started;
    await expectWholeAnswer({ events, open: byTurns(relays), cookie, relays, socketOf: () => socket });
    expect(upstream.requests).toHaveLength(1);
  },
);

describeWithRedis('two instances', () => {
  describeWithNginx('behind nginx', () => {
    test('give it the same, wherever each connection is cut', async () => {
      const started = await startJoinInstances(2, {}, () => [INIT]);
      pair = started;
      const { relays, cookie, streams, upstream, redis } = started;
      const nginx = await startNginx(relays.map(({ port }) => port) as [number, number]);
      for (const [before, events] of [0, 1, 2, 3, 4].entries()) {
        const socketOf = () => streams[before];
        await expectWholeAnswer({ events, open: () => connectedTo(nginx), cookie, relays, socketOf });
        expect(upstream.requests).toHaveLength(before + 1);
        // Its id is too short to be remembered: the next message with it runs.
        await runsEnded(redis);
      }
      const messages = () => [...nginx.log().matchAll(/^\{.*"method":"POST".*"relay":"([^"]*)".*\}$/gm)];
      // A line is written after the end of its answer.
      await until(() => messages().length >= 5 * (CUTS + 1));
      expect(messages()).toHaveLength(5 * (CUTS + 1));
      expect(new Set(messages().map(([, relay]) => relay)).size).toBe(2);
    });
  });
});

/** A connection for HTTP/1.1. */
function connectedTo({ origin, certificate }: LoadBalancer): Socket {
  const { port } = new URL(origin);
  const way = { host: '127.0.0.1', port: Number(port), servername: 'localhost' };
  return connectTls({ ...way, ca: certificate, ALPNProtocols: ['http/1.1'] });
}
