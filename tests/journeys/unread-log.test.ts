import { afterAll, describe, expect } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { startUnread, stopUnread } from '../harness/relay/unread-log.ts';
import { readAgain, unreadRelay } from '../harness/relay/unread-relay.ts';

afterAll(stopUnread);

async function startDemo() {
  const noService = { UPSTREAM_BASE_URL: '', UPSTREAM_API_KEYS: '', BOTS: '' };
  const relay = await startUnread('pipe', noService);
  expect(await call(relay.port, '/readyz')).toMatchObject({ status: 200 });
  relay.output.read();
  await until(() => relay.output.text().includes('demo mode'), 20);
  expect(relay.output.text()).toMatch(
    /^\.+\n[\s\S]*"msg":"listening"\}\n[\s\S]*bot-relay is running in demo mode/,
  );
}

// `npm run prove` does the same with a socket; `log-output.test.ts` has a socket, too.
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
