import { afterAll, describe, expect, jest } from '@jest/globals';
import { call } from '../support/call.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { sleep } from '../support/sleep.ts';
import { PATIENCE_MS, startUnread, stopUnread } from '../support/unread-log.ts';
import { readAgain, unreadRelay } from '../support/unread-relay.ts';

jest.setTimeout(120_000);
afterAll(stopUnread);

async function startDemo() {
  const noService = { UPSTREAM_BASE_URL: '', UPSTREAM_API_KEYS: '', BOTS: '' };
  const relay = await startUnread('pipe', noService);
  expect(await call(relay.port, '/readyz')).toMatchObject({ status: 200 });
  relay.output.read();
  const deadline = performance.now() + PATIENCE_MS;
  while (!relay.output.text().includes('demo mode') && performance.now() < deadline) await sleep(20);
  expect(relay.output.text()).toMatch(
    /^\.+\n[\s\S]*"msg":"listening"\}\n[\s\S]*bot-relay is running in demo mode/,
  );
}

// `npm run prove` does the same with a socket, and with workers; `log-output.test.ts` has a socket, too.
describe('a relay whose log goes to a pipe that nobody reads', () => {
  testSideBySide(Object.entries(unreadRelay('pipe')));
});

describe('a relay', () => {
  testSideBySide([
    // Nobody has to read a file, so an exit has nothing to wait for.
    ['whose log goes to a file serves and loses nothing', () => readAgain('file')],
    [
      'with a full pipe as standard output starts as a demo, and prints its banner when it is read',
      startDemo,
    ],
  ]);
});
