import type { Counter } from 'prom-client';

/** The results of a request to the bot service: a class of statuses, a special status, or why there is no response. */
const UPSTREAM_OUTCOMES = [
  ...['1xx', '2xx', '3xx', '4xx', '5xx', 'key_rejected', 'forbidden', 'rate_limited', 'other'],
  ...['unreachable', 'no_file', 'not_http', 'timeout', 'given_up'],
];

/** Starts every outcome of each of `keys` at 0; existing counts stay. */
export function zeroKeys(
  { upstreamResponses }: { readonly upstreamResponses: Counter<'key' | 'outcome'> },
  keys: readonly string[],
): void {
  for (const key of keys) {
    for (const outcome of UPSTREAM_OUTCOMES) upstreamResponses.inc({ key, outcome }, 0);
  }
}
