import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, expect, test } from '@jest/globals';
import { INIT, type JoinPair, startJoinPair } from '../harness/clients/joining.ts';
import { CUTS, expectWholeAnswer } from '../harness/clients/old-client.ts';
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
