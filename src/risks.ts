import type { Config } from './config.ts';
import { isLoopback } from './loopback.ts';

/** What the configuration allows and the operator should know, in plain words. */
export function risksOf(config: Config): string[] {
  const { authMode, demo, production, publicUrl, redisUrl, trustProxy, upstream } = config;
  if (demo) return [];
  const risks: string[] = [];
  if (production && !redisUrl) {
    risks.push('REDIS_URL is not set: sessions and budgets are in the memory of this process; run only one');
  }
  if (publicUrl.protocol !== 'https:') risks.push('PUBLIC_URL is not https: session cookies are not Secure');
  else if (trustProxy === false) {
    risks.push('TRUST_PROXY is not set: all clients behind the load balancer count as one address');
  }
  if (production && authMode === 'guest' && trustProxy === false) {
    risks.push(
      'TRUST_PROXY is not set: all guests share the places of one address; one can keep all others out',
    );
  }
  const { protocol, hostname } = upstream.baseUrl as URL;
  if (protocol !== 'https:' && !isLoopback(hostname)) {
    risks.push('UPSTREAM_BASE_URL is not https: the API key crosses the network in clear text');
  }
  return risks;
}
