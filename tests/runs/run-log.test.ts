import { expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { carryTo } from '../../src/relay/message/carry-stream.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import type { StreamSink } from '../../src/relay/message/response-sink.ts';
import type { AnswerReader, UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { RunLog } from '../../src/runs/run-log.ts';
import { MAX_READERS_PER_USER, TOO_MANY_OF_USER, userReaders } from '../../src/runs/run-reader.ts';
import { RunStream } from '../../src/runs/run-stream.ts';
import { UNHEALED } from '../harness/relay/unhealed.ts';

/** As large as the largest page. */
const PAGE_BYTES = 32_768;
const pageOf = (letter: string) => Buffer.alloc(PAGE_BYTES, letter);

test('a part of the log that was lent stays as it was, however much comes after it', () => {
  const log = new RunLog(heldBytes(1 << 20));
  log.push(pageOf('a'), false);
  const lent = log.lend(0)?.bytes;
  for (const letter of 'bcdef') {
    log.push(pageOf(letter), false);
    log.trim(1.5 * PAGE_BYTES, log.end);
  }
  expect(lent).toEqual(pageOf('a'));
  expect(log.read(log.start)?.bytes).toEqual(pageOf('f'));
});

test('a page that nobody has a part of is used again', () => {
  const log = new RunLog(heldBytes(1 << 20));
  log.push(pageOf('a'), false);
  const first = log.read(0)?.bytes.buffer;
  log.push(pageOf('b'), false);
  log.trim(1.5 * PAGE_BYTES, log.end);
  log.push(pageOf('c'), false);
  expect(log.read(2 * PAGE_BYTES)?.bytes.buffer).toBe(first);
});

const ENDED = new Problem('session_ended', 'Signed out.');
const HELD_BYTES = 64;

/** Carries to a run what the returned function is called with. */
function carried() {
  const stream = new RunStream({ bound: heldBytes(1 << 20), maxBytes: 65_536 });
  let service = {} as AnswerReader;
  const answer: UpstreamAnswer = {
    ...{ status: 200, headers: {}, pause() {}, resume() {}, close() {}, hasError: () => false },
    read(reader) {
      service = reader;
    },
  };
  const holding = { ...UNHEALED.holding, maxBytes: HELD_BYTES };
  void carryTo(stream, {
    ...{ ...UNHEALED, holding, answer, log: {}, signal: new AbortController().signal },
  });
  return { stream, send: (text: string) => service.data(Buffer.from(text)) };
}

/** One who reads from the beginning. `end` ends it, and returns how. */
function readerOf(stream: RunStream) {
  let how: unknown;
  const outlet: StreamSink = {
    ...{ open() {}, write() {}, isFull: () => false, hasBegun: () => true, complete() {} },
    endEarly(problem, isCut) {
      how = { problem, isCut };
    },
  };
  const reader = stream.read(outlet, 0, () => {});
  return {
    end() {
      reader.end(ENDED);
      return how;
    },
  };
}

test('a reader that is ended inside an event is cut, whether it came before that or reads it from the log', () => {
  const { stream, send } = carried();
  const [whole, cut] = [false, true].map((isCut) => ({ problem: ENDED, isCut }));
  send('data: 1\n\n');
  expect(readerOf(stream).end()).toEqual(whole);
  const early = readerOf(stream);
  // Too large to be held until it is whole.
  send(`data: ${'x'.repeat(HELD_BYTES)}`);
  expect([early.end(), readerOf(stream).end()]).toEqual([cut, cut]);
  send('\n\n');
  expect(readerOf(stream).end()).toEqual(whole);
});

test('a reader that is ended while another one is given bytes gets none of them', () => {
  const { stream, send } = carried();
  const got: string[] = [];
  const late: (() => void)[] = [];
  const read = (name: string, write: () => void) => {
    const outlet: StreamSink = {
      ...{ open() {}, isFull: () => false, hasBegun: () => true, complete() {}, endEarly() {} },
      write() {
        got.push(name);
        write();
      },
    };
    const reader = stream.read(outlet, 0, () => {});
    late.push(() => reader.end(ENDED));
  };
  // The first one and the one after it are ended, both from the loop over all.
  read('first', () => late.slice(0, 2).map((end) => end()));
  read('second', () => {});
  read('third', () => {});
  send('data: 1\n\n');
  expect(got).toEqual(['first', 'third']);
});

test('each user has so many readers, and one more ends the oldest', () => {
  const readers = userReaders();
  const add = (user: string) => {
    const stop = new AbortController();
    return { stop, release: readers.add(user, stop) };
  };
  const all = Array.from({ length: MAX_READERS_PER_USER }, () => add('ada'));
  const other = add('grace');
  all[3]?.release();
  all[3]?.release();
  add('ada');
  const aborted = () => all.flatMap(({ stop }, at) => (stop.signal.aborted ? [at] : []));
  expect(aborted()).toEqual([]);
  add('ada');
  expect(aborted()).toEqual([0]);
  expect(all[0]?.stop.signal.reason).toBe(TOO_MANY_OF_USER);
  // It was given back already.
  all[0]?.release();
  add('ada');
  expect(aborted()).toEqual([0, 1]);
  expect(other.stop.signal.aborted).toBe(false);
});
