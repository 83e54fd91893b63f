import { expect } from '@jest/globals';
import { call } from '../clients/call.ts';
import { until } from '../clock/until.ts';
import type { Kind } from './readable-output.ts';
import { DRAINING, drainingFor, REQUESTS, request, requestsIn, startUnread } from './unread-log.ts';

/** The cases by their titles. */
export const unreadRelay = (kind: Kind) => ({
  'goes on serving, and loses nothing if the log is read again': () => readAgain(kind),
  'exits with 0 after SIGTERM': () => stop(kind),
  'exits with 1 after a second signal': () => stopTwice(kind),
  'exits with 1 after an uncaught error': () => crash(kind),
});

export async function readAgain(kind: Kind) {
  const relay = await startUnread(kind);
  expect(await request(relay)).toBe(REQUESTS);
  expect(await call(relay.port, '/healthz')).toMatchObject({ status: 200 });
  const { body } = await call(relay.metricsPort, '/metrics');
  expect(body).toContain('\nbot_relay_log_lines_dropped_total 0\n');
  relay.output.read();
  // At its end, the relay waits for its reader for a short time only.
  await until(() => requestsIn(relay) === REQUESTS, 20);
  relay.signal('SIGTERM');
  expect(await relay.exited).toBe(0);
  await relay.output.ended;
  expect(requestsIn(relay)).toBe(REQUESTS);
  expect(relay.messages().at(-1)).toBe('stopped');
}

async function stop(kind: Kind) {
  const relay = await startUnread(kind);
  expect(await request(relay)).toBe(REQUESTS);
  relay.signal('SIGTERM');
  expect(await relay.exited).toBe(0);
}

async function stopTwice(kind: Kind) {
  const relay = await startUnread(kind, DRAINING);
  expect(await request(relay)).toBe(REQUESTS);
  relay.signal('SIGTERM');
  await drainingFor(relay);
  relay.signal('SIGTERM');
  expect(await relay.exited).toBe(1);
}

async function crash(kind: Kind) {
  const relay = await startUnread(kind);
  expect(await request(relay)).toBe(REQUESTS);
  relay.signal('SIGUSR2');
  expect(await relay.exited).toBe(1);
}
