import { expect, test } from '@jest/globals';
import { newRun } from '../../src/join/run.ts';
import { RUN_DROPPED } from '../../src/join/run-follower.ts';
import { runLog } from '../../src/join/run-log.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { type ConductedRun, conductRun } from '../../src/routes/conduct-run.ts';
import type { Answered, MessageTask } from '../../src/routes/message-steps.ts';
import { until } from '../support/until.ts';

const HEAD = new Map([['Content-Type', 'text/event-stream']]);
const NO_LOG = { error() {}, warn() {}, info() {} };

/** Conducts a run with one client. Returns how it has ended. */
async function outcomeOf(how: Pick<ConductedRun, 'sent'> & Partial<ConductedRun>) {
  const log = runLog(heldBytes(1 << 20));
  const progress = { hasLeft: true, mayHaveStarted: true };
  const options = { log, maxBytes: 65_536, graceMs: () => 0, requestId: 'r', progress };
  const run = newRun({ ...options, onLeft() {}, onChange() {} });
  run.sit({ stop: new AbortController(), holdRun: () => () => {} });
  const task = { releases: [] as (() => void)[] } as MessageTask;
  const others = { hasBegun: false, failureOf: async (error: unknown) => error, carry: async () => {} };
  conductRun({ ...others, run, task, logger: NO_LOG as unknown as ConductedRun['logger'], ...how });
  await until(() => run.isOver());
  return run.outcome();
}

const answered: Pick<Answered, 'head'> = { head: HEAD };
const sent = Promise.resolve(answered as Answered);

test('a run begins with the head of its answer, unless it has begun at another instance', async () => {
  expect((await outcomeOf({ sent })).head).toBe(HEAD);
  expect((await outcomeOf({ sent, hasBegun: true })).head).toBeUndefined();
});

test('a message that was not sent has failed with what has refused it', async () => {
  const failed = () => Promise.reject(new Error('not sent'));
  expect(await outcomeOf({ sent: failed(), failureOf: async () => RUN_DROPPED })).toEqual({
    head: undefined,
    failure: RUN_DROPPED,
  });
});

test('a run whose stream cannot be carried is over', async () => {
  const fault = new Error('a fault');
  const carry = () => {
    throw fault;
  };
  expect((await outcomeOf({ sent, carry })).failure).toBe(fault);
});
