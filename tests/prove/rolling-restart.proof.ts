import { afterEach, jest, test } from '@jest/globals';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  describeWithLoadBalancers,
  startCaddy,
  startHaproxy,
} from '../harness/relay/deployed-load-balancers.ts';
import { describeWithNginx, startNginx } from '../harness/relay/nginx.ts';
import { expectRestartsLoseNothing, stopRollingRestart } from '../harness/relay/rolling-restart.ts';

jest.setTimeout(120_000);

/** At least this many messages are sent while both relays restart. */
const messages = Number(process.env.RESTART_MESSAGES ?? 500);

afterEach(stopRollingRestart);

const fronts = [
  ['nginx', startNginx, describeWithNginx],
  ['HAProxy', startHaproxy, describeWithLoadBalancers],
  ['Caddy', startCaddy, describeWithLoadBalancers],
] as const;

describeWithRedis('two relays in production', () => {
  for (const [name, startLoadBalancer, describeWithFront] of fronts) {
    describeWithFront(`behind ${name}`, () => {
      test('are restarted one after the other, and no message fails or runs twice', async () => {
        await expectRestartsLoseNothing({ messages, startLoadBalancer });
      });
    });
  }
});
