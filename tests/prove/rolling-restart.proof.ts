import { afterEach, describe, jest, test } from '@jest/globals';
import { describeWithLoadBalancers, startCaddy, startHaproxy } from '../support/deployed-load-balancers.ts';
import { describeWithNginx, startNginx } from '../support/nginx.ts';
import { describeWithRedis } from '../support/redis.ts';
import { expectRestartsLoseNothing, stopRollingRestart } from '../support/rolling-restart.ts';

jest.setTimeout(120_000);

/** At least this many messages are sent while both relays restart. */
const messages = Number(process.env.RESTART_MESSAGES ?? 500);

afterEach(stopRollingRestart);

const fronts = [
  ['nginx', startNginx, '1', describeWithNginx],
  ['HAProxy', startHaproxy, '2', describeWithLoadBalancers],
  ['Caddy', startCaddy, '1', describeWithLoadBalancers],
] as const;

describeWithRedis('two relays in production', () => {
  describe.each(fronts)('behind %s', (_name, startLoadBalancer, WORKERS, describeWithFront) => {
    describeWithFront(`of ${WORKERS} worker(s) each`, () => {
      test('are restarted one after the other, and no message fails or runs twice', async () => {
        await expectRestartsLoseNothing({ messages, startLoadBalancer, environment: { WORKERS } });
      });
    });
  });
});
