import { afterEach } from '@jest/globals';
import { testWithProc } from '../harness/relay/resident-memory.ts';
import { floodUnread, stopFlood } from '../harness/relay/unread-flood.ts';

const FLOOD_MB = Number(process.env.FLOOD_MB ?? 200);

afterEach(stopFlood);

testWithProc(
  'a client that reads nothing of a very long answer costs no memory, and gets everything when it reads',
  () => floodUnread(FLOOD_MB),
  10_000 + FLOOD_MB * 1_000,
);
