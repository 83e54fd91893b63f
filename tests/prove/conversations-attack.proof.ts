import { afterAll, test } from '@jest/globals';
import { expectNotReached, stopAttacks } from '../harness/clients/attack-conversations.ts';

/** `ATTACKS` sets another number. */
const TRIES = Number(process.env.ATTACKS ?? 10_000);

afterAll(stopAttacks);

test(
  `another user's conversation is not reached by ${TRIES} tries, however lax the bot service is`,
  () => expectNotReached(TRIES),
  120_000,
);
