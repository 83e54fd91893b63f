import { afterEach, expect, test } from '@jest/globals';
import { newRun, type Run } from '../../src/join/run.ts';
import { dropLog, runLog } from '../../src/join/run-log.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { goOnWith } from '../../src/routes/go-on.ts';
import { until } from '../support/relay-and-upstream.ts';

const NO_LOG = { error() {}, warn() {}, info() {} };

let run: Run;
afterEach(() => dropLog(run.log));

test('a run that was taken over, and fails without a client, is told to the log', async () => {
  const logs: object[] = [];
  const progress = { hasLeft: true, mayHaveStarted: true };
  const log = runLog(heldBytes(1 << 20));
  const options = { log, maxBytes: 65_536, graceMs: () => 60_000, requestId: 'r', progress };
  run = newRun({ ...options, onLeft() {}, onChange() {} });
  const seat = run.sit({ stop: new AbortController(), holdRun: () => () => {} });
  seat.begun.catch(() => {});
  seat.leave();
  // There is no room for its events.
  const route = {
    times: { maxExecutionMs: 1_000, responseTimeoutMs: 1_000, idleTimeoutMs: 1_000 },
    holding: { held: heldBytes(0), maxEventBytes: 0 },
    logger: { ...NO_LOG, warn: (fields: object) => logs.push(fields) },
  };
  const hold = {
    ...{
      userId: 'user@example.com',
      bot: { namespace: 'n', name: 'b' },
      shape: 'generic',
      holders: { user: 'u' },
    },
    ...{ path: '/', headers: {}, body: '' },
  };
  goOnWith(route as never)({ run, hold, cursor: CURSOR, sinceMs: 0 });
  await until(() => run.isOver());
  expect(logs).toMatchObject([{ requestId: 'r', outcome: 'upstream_stream_broken', cause: 'no_room' }]);
});

const CURSOR = {
  ...{ lastEventId: '7', idBlock: undefined, retryMs: undefined, runId: undefined, run: 'begun' },
  ...{ firstEvents: 0, hasTypes: true, tail: Buffer.alloc(64).toString('base64') },
};
