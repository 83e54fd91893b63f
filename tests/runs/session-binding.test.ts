import { expect, test } from '@jest/globals';
import { CLIENT_LEFT } from '../../src/http/client-connection.ts';
import { readerOf } from '../harness/runs/recording-sink.ts';
import { runOf } from '../harness/runs/run-stores.ts';

const NAME = { conversation: 'c', message: 'm', key: 'k', outlivesRun: true };

test('a run without readers lets go of its last session once, when it ends, and not again for who comes then', () => {
  const run = runOf(NAME, { graceMs: 60_000 });
  let bound = 0;
  let released = 0;
  const stop = new AbortController();
  const bindToSession = () => {
    bound += 1;
    return () => {
      released += 1;
    };
  };
  const reader = run.attach({ stop, bindToSession });
  run.sent();
  run.beginStream(new Map());
  stop.abort(CLIENT_LEFT);
  reader.leave();
  expect([bound, released]).toEqual([1, 0]);
  run.stream.complete();
  run.end();
  expect([bound, released]).toEqual([1, 1]);
  readerOf(run);
  expect([bound, released]).toEqual([1, 1]);
});
