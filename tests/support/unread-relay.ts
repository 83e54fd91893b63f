import { expect } from '@jest/globals';
import { call } from './call.ts';
import type { Kind } from './readable-output.ts';
import { DRAINING, drainingFor, REQUESTS, request, SOON_MS, startUnread, timed } from './unread-log.ts';
import { whileAwake } from './while-awake.ts';

/** The cases of a relay that is one process, by their titles. */
export const unreadRelay = (kind: Kind) => ({
  'goes on serving, and loses nothing if the log is read again': whileAwake(() => readAgain(kind)),
  'exits with 0 soon after SIGTERM': () => stop(kind),
  'exits with 1 soon after a second signal': () => stopTwice(kind),
  'exits with 1 soon after an uncaught error': () => crash(kind),
});

export async function readAgain(kind: Kind) {
  const relay = await startUnread(kind);
  expect(await request(relay)).toBe(REQUESTS);
  expect(await call(relay.port, '/healthz')).toMatchObject({ status: 200 });
  const { body } = await call(relay.metricsPort, '/metrics');
  expect(body).toContain('\nbot_relay_log_lines_dropped_total 0\n');
  relay.output.read();
  relay.signal('SIGTERM');
  expect(await relay.exited).toBe(0);
  await relay.output.ended;
  const messages = relay.messages();
  expect(messages.filter((msg) => msg === 'request')).toHaveLength(REQUESTS);
  expect(messages.at(-1)).toBe('stopped');
}

async function stop(kind: Kind) {
  const relay = await startUnread(kind);
  expect(await request(relay)).toBe(REQUESTS);
  const { code, ms } = await timed(relay, () => relay.signal('SIGTERM'));
  expect(code).toBe(0);
  expect(ms).toBeLessThan(SOON_MS);
}

export async function stopTwice(kind: Kind, environment: Record<string, string> = {}) {
  const relay = await startUnread(kind, { ...environment, ...DRAINING });
  expect(await request(relay)).toBe(REQUESTS);
  relay.signal('SIGTERM');
  await drainingFor(relay);
  const { code, ms } = await timed(relay, () => relay.signal('SIGTERM'));
  expect(code).toBe(1);
  expect(ms).toBeLessThan(SOON_MS);
}

async function crash(kind: Kind) {
  const relay = await startUnread(kind);
  expect(await request(relay)).toBe(REQUESTS);
  const { code, ms } = await timed(relay, () => relay.signal('SIGUSR2'));
  expect(code).toBe(1);
  expect(ms).toBeLessThan(SOON_MS);
}
