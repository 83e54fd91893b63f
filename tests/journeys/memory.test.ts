import { afterEach } from '@jest/globals';
import { testWithProc } from '../support/resident-memory.ts';
import { floodUnread, stopFlood } from '../support/unread-flood.ts';

afterEach(stopFlood);

// `npm run prove` does the same with many times as much.
testWithProc(
  'a client that reads nothing costs no memory, and gets everything when it reads',
  () => floodUnread(48),
  60_000,
);
