import http from 'node:http';
import https from 'node:https';

/**
 * An idle connection is dropped after this time, in ms: sooner than common servers drop theirs (5 s and
 * more), so that a message is not sent into a connection that is just being closed. A shorter
 * `Keep-Alive: timeout` of the service wins, less a second.
 */
const IDLE_MS = 4_000;

/**
 * Connections to the bot service: kept between messages and without an upper bound, since the open streams
 * are bounded by the endpoints' budgets already. `keepAlive: false` gives every message its own connection.
 */
export function upstreamAgent(protocol: string, { keepAlive }: { keepAlive: boolean }): http.Agent {
  const options = keepAlive
    ? { keepAlive, maxSockets: Number.POSITIVE_INFINITY, maxFreeSockets: 256, timeout: IDLE_MS }
    : { keepAlive, maxSockets: Number.POSITIVE_INFINITY };
  return protocol === 'https:' ? new https.Agent(options) : new http.Agent(options);
}
