import type { Config } from '../config/config.ts';
import type { Finding } from './findings.ts';
import { count } from './print-findings.ts';

/** An address of a network that nobody uses (RFC 5737). */
export const CLAIMED_ADDRESS = '203.0.113.77';

/** How the relay saw a request that claimed to come from `CLAIMED_ADDRESS`. */
export interface SeenClient {
  /** Which client address the relay took. */
  readonly address: string;
  /** The addresses in `X-Forwarded-For`, the nearest last. */
  readonly forwarded: readonly string[];
}

/** Judges whether a client can claim any address, or all clients count as one. */
export function clientFinding(
  { address, forwarded }: SeenClient,
  trustProxy: Config['trustProxy'],
): Omit<Finding, 'check'> {
  // Every proxy that extends the header adds one address. The claimed address, if it was kept, is the first.
  const added = forwarded.length - (forwarded[0] === CLAIMED_ADDRESS ? 1 : 0);
  if (address === CLAIMED_ADDRESS) {
    const says = 'the relay believes an X-Forwarded-For that a client sends: anybody can be any address';
    return { state: 'problem', says, advice: adviceOnClaim(added, trustProxy) };
  }
  if (typeof trustProxy !== 'object' && added > Number(trustProxy)) {
    return {
      state: 'problem',
      says: `all clients count as one, ${address}: ${count(added, 'proxy', 'proxies')} said who the client is, and TRUST_PROXY ${trustProxy === false ? 'is not set' : `is ${trustProxy}`}`,
      advice: `Set TRUST_PROXY to ${added}.`,
    };
  }
  return { state: 'ok', says: `an X-Forwarded-For of its own is not believed; this machine is ${address}` };
}

function adviceOnClaim(added: number, trustProxy: Config['trustProxy']): string {
  if (!added) {
    return (
      'The load balancer passes the header on as it came. Let it overwrite it (nginx: proxy_set_header ' +
      'X-Forwarded-For $remote_addr; HAProxy: http-request set-header X-Forwarded-For %[src]; Caddy: no header_up for it).'
    );
  }
  return typeof trustProxy === 'object'
    ? "Take this machine's network out of TRUST_PROXY, which names the load balancers alone; or let the load balancer overwrite the header."
    : `Set TRUST_PROXY to ${added}, the number of proxies that add an address; it is ${trustProxy}.`;
}

/** How often a probe that was made to fail arrived at the relay. */
export interface SeenFailure {
  /** How it failed, in words. */
  readonly how: string;
  /** Whether its connection was cut, and not answered with a status. */
  readonly isCut: boolean;
  readonly arrivals: number;
}

/** The relay answers a message that it has sent with 200, so that only a cut, or a proxy before the relay, fails it. */
function wouldHappen(again: readonly SeenFailure[]): string {
  return again.some(({ isCut }) => isCut)
    ? 'a message would run, and be paid, as often'
    : 'an operation, or the resumption of a message, would be done as often';
}

/** Judges whether the load balancer sends failed requests again. `shared`: all instances count together. */
export function failuresFinding(seen: readonly SeenFailure[], shared: boolean): Omit<Finding, 'check'> {
  const again = seen.filter(({ arrivals }) => arrivals > 1);
  if (again.length > 0) {
    const how = again.map(({ how, arrivals }) => `${count(arrivals, 'time')} after ${how}`).join(', ');
    return {
      state: 'problem',
      says: `a POST that had failed came again (${how}): ${wouldHappen(again)}`,
      advice:
        'Let the load balancer send nothing again that it has sent (nginx: no non_idempotent in proxy_next_upstream; ' +
        'HAProxy: retry-on conn-failure; Caddy: no POST in lb_retry_match).',
    };
  }
  const lost = seen.filter(({ arrivals }) => arrivals === 0).map(({ how }) => how);
  if (lost.length > 0) {
    return {
      state: 'note',
      says: `not proven: the instance that was asked has not seen the POST that failed with ${lost.join(', ')}`,
      advice: shared
        ? 'Look at what the load balancer does with a POST below /generic/.'
        : 'Set REDIS_URL: without it, instances do not count together.',
    };
  }
  const says = `a POST came once: ${seen.map(({ how }) => how).join(', ')}`;
  if (shared) return { state: 'ok', says };
  const advice = 'Without REDIS_URL only one instance was checked; what the others received is not known.';
  return { state: 'note', says, advice };
}
