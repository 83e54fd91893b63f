import { openBrowser } from '../browser/browser.ts';
import {
  describeWithLoadBalancers,
  describeWithNginx,
  startCaddy,
  startHaproxy,
  startNginx,
} from './deployed-load-balancers.ts';
import { type Reply, startFakeRelay } from './fake-relay.ts';
import { freePort } from './free-port.ts';
import { BOT_PATH, MESSAGE } from './relay.ts';

/** So many messages that each relay gets some of them, also if a relay is drawn for each. */
export const MANY = 32;

/** A file of `deploy/`, and how it is run. */
export interface Program {
  readonly file: string;
  readonly describeWith: typeof describeWithNginx;
  readonly start: typeof startHaproxy;
}

const of = (file: string, describeWith: Program['describeWith'], start: Program['start']): Program => ({
  ...{ file, describeWith, start },
});
export const NGINX = of('deploy/nginx.conf', describeWithNginx, startNginx);
export const HAPROXY = of('deploy/haproxy.cfg', describeWithLoadBalancers, startHaproxy);
export const CADDY = of('deploy/Caddyfile', describeWithLoadBalancers, startCaddy);
export const PROGRAMS = [NGINX, HAPROXY, CADDY];

/** A load balancer in front of two relays. */
export type Deployed = Awaited<ReturnType<typeof deploy>>;

/** Starts it in front of two relays that answer with `reply`. */
export async function deploy({ start }: Program, reply: Reply) {
  const ports = [await freePort(), await freePort()] as const;
  const relays = [await startFakeRelay(ports[0], reply), await startFakeRelay(ports[1], reply)] as const;
  const front = await start(ports);
  const browser = openBrowser(front.origin, front.certificate);
  const post = (body: string | Buffer = MESSAGE) => browser.send(BOT_PATH, { body });
  /** How many requests each relay has got. */
  const counts = () => relays.map(({ seen }) => seen.length);
  return {
    ...{ front, relays, send: browser.send, post, counts },
    /** Sends `MANY` messages at once. */
    postMany: () => Promise.all(Array.from({ length: MANY }, () => post().catch((error: Error) => error))),
    /** How many requests both have got. */
    total: () => counts().reduce((a, b) => a + b),
    /** Closes the relays and the connections to the load balancer, which goes on until `stopPrograms`. */
    async close() {
      browser.close();
      for (const relay of relays) await relay.close();
    },
  };
}
