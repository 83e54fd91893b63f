import { afterAll, describe, jest } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { stopUnread } from '../harness/relay/unread-log.ts';
import { unreadRelay } from '../harness/relay/unread-relay.ts';

jest.setTimeout(120_000);
afterAll(stopUnread);

// `npm test` covers a pipe.
describe('a relay whose log goes to a socket that nobody reads', () => {
  testSideBySide(Object.entries(unreadRelay('socket')));
});
