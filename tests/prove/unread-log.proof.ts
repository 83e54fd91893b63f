import { afterAll, describe, jest } from '@jest/globals';
import { describeWithRedis } from '../support/redis.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { stopUnread } from '../support/unread-log.ts';
import { unreadRelay } from '../support/unread-relay.ts';
import { unreadWorkers } from '../support/unread-workers.ts';

jest.setTimeout(120_000);
afterAll(stopUnread);

// `npm test` covers one process with a pipe.
describe('a relay whose log goes to a socket that nobody reads', () => {
  testSideBySide(Object.entries(unreadRelay('socket')));
});

describeWithRedis.each(['pipe', 'socket'] as const)(
  'workers whose log goes to a %s that nobody reads',
  (kind) => {
    // One at a time: each has three processes, which together leave too little of two cores to start in time.
    testSideBySide(Object.entries(unreadWorkers(kind)), 1);
  },
);
