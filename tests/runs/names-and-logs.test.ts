import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Problem } from '../../src/errors.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { eventPlace } from '../../src/runs/event-place.ts';
import { KeptRuns } from '../../src/runs/kept-runs.ts';
import { RunLog } from '../../src/runs/run-log.ts';
import { type NamedMessage, resetsConversation, runName } from '../../src/runs/run-name.ts';
import { MAX_READERS_PER_USER, TOO_MANY_OF_USER, userReaders } from '../../src/runs/run-reader.ts';
import { RunStream } from '../../src/runs/run-stream.ts';
import { end, nameOf, RecordingSink, readerOf, runOf, say } from '../harness/runs/carried-run.ts';

const ID = '0123456789abcdef';
const MESSAGE: NamedMessage = {
  ...{ user: 'ada', bot: 'acme/helper', channel: 'c1', query: '', headers: {} },
  ...{ value: { customMessageId: ID, text: 'hi', action: 'NONE' }, bytes: Buffer.from('body') },
};
const name = (changes: Partial<NamedMessage> = {}) => runName({ ...MESSAGE, ...changes });
const withBody = (changes: object) => name({ value: { ...(MESSAGE.value as object), ...changes } });

describe('the name of a message', () => {
  test.each<[string, Partial<NamedMessage>]>([
    ['user', { user: 'bob' }],
    ['bot', { bot: 'acme/other' }],
    ['conversation', { channel: 'c2' }],
    ['id', { value: { customMessageId: `${ID}0`, text: 'hi' } }],
    ['body', { bytes: Buffer.from('other') }],
    ['query', { query: 'is_debug=true' }],
  ])('is another one with another %s', (what, changes) => {
    const { key, ...rest } = name(changes);
    expect(name()).toEqual(name());
    expect(key).not.toBe(name().key);
    // All runs of one message are known by it, whatever its body is.
    if (what === 'body') expect(name()).toMatchObject(rest);
  });

  test.each([undefined, '', 7, null, 'x'.repeat(257)])(
    'is that of its bytes with the id %p, and not kept after its end',
    (customMessageId) => {
      const unnamed = withBody({ customMessageId });
      expect(unnamed).toMatchObject({ message: undefined, outlivesRun: false });
      expect(withBody({ customMessageId })).toEqual(unnamed);
      const value = { customMessageId, text: 'hi' };
      expect(name({ value, bytes: Buffer.from('other') }).key).not.toBe(unnamed.key);
      expect(name({ value, user: 'bob' }).key).not.toBe(unnamed.key);
    },
  );

  test('has the id of Idempotency-Key only if the body has none', () => {
    const headers = { 'idempotency-key': `${ID}1` };
    expect(name({ headers })).toEqual(name());
    expect(name({ headers, value: { text: 'hi' } }).message).toBe(
      withBody({ customMessageId: `${ID}1` }).message,
    );
    expect(name({ value: [] }).message).toBeUndefined();
  });

  test.each<[boolean, object]>([
    [true, {}],
    [true, { action: undefined }],
    [true, { text: '', blobIds: ['b'] }],
    [false, { text: '' }],
    [false, { text: '', blobIds: [] }],
    [false, { action: 'RESPONSE_TOOL_CALL_CONSENT' }],
    [false, { action: 'none' }],
    [false, { customMessageId: ID.slice(1) }],
  ])('outlives its run: %p, with %j', (outlivesRun, changes) => {
    expect(withBody(changes).outlivesRun).toBe(outlivesRun);
  });

  test('resets its conversation only with that action', () => {
    const values = [{ action: 'RESET_CHANNEL' }, {}, [], null, 'RESET_CHANNEL'];
    expect(values.map(resetsConversation)).toEqual([true, false, false, false, false]);
  });
});

function logOf(...pieces: readonly string[]) {
  const log = new RunLog(heldBytes(1 << 20));
  for (const piece of pieces) log.push(Buffer.from(piece, 'latin1'), false);
  return log;
}

/** What stands in the log before the place. */
function upTo(text: string, id = '7'): string | undefined {
  const place = eventPlace(logOf(text), id);
  return place === undefined ? undefined : text.slice(0, place);
}

const BOM = '\xef\xbb\xbf';
const LONG = 'x'.repeat(1_000);

/** What a plain parser finds (WHATWG HTML §9.2.6), which reads each line from the first one on. */
function plainPlace(text: string, id: string): string | undefined {
  let place: number | undefined;
  let last: string | undefined;
  for (const { 0: whole, 1: line = '', 2: ending, index } of text.matchAll(/([^\r\n]*)(\r\n|\r|\n)/g)) {
    const end = index + whole.length;
    const field = index === 0 && line.startsWith(BOM) ? line.slice(BOM.length) : line;
    if (field === 'id') last = '';
    else if (field.startsWith('id:')) last = field.slice(field[3] === ' ' ? 4 : 3);
    if (field !== '') continue;
    // An LF that belongs to this CR may follow.
    const isKnown = ending !== '\r' || end < text.length;
    if (last === id && isKnown) place = end;
    last = undefined;
  }
  return place === undefined ? undefined : text.slice(0, place);
}

/** A piece of a stream. Most of them are nearly the id that is looked for. */
const piece = fc.oneof(
  { arbitrary: fc.constantFrom('\n', '\r', '\r\n', '\n\n'), weight: 4 },
  { arbitrary: fc.constantFrom('id:7\n', 'id: 7\n\n', 'id:8\n', 'id\n'), weight: 3 },
  fc.constantFrom('id', 'id:', 'id: ', 'Id: ', 'id; ', 'x', ' ', '7', '77', 'data: id: 7', BOM, LONG),
);

describe('the place in a log after an event', () => {
  test('is that which a plain parser finds, whatever the log holds', () => {
    const stream = fc.array(piece, { maxLength: 16, size: 'max' }).map((pieces) => pieces.join(''));
    const property = fc.property(stream, fc.constantFrom('7', ' 7', '77'), (text, id) => {
      expect(upTo(text, id)).toBe(plainPlace(text, id));
    });
    fc.assert(property, { numRuns: 3_000 });
  });

  test('may need an id that is longer than what is searched for', () => {
    const id = 'a'.repeat(40);
    expect(upTo(`id: ${id}\n\nid: ${id}a\n\nid: ${id.slice(1)}b\n\n`, id)).toBe(`id: ${id}\n\n`);
  });

  test('is found across pages, and in a log that has lost its beginning', () => {
    const log = logOf(`data: ${'x'.repeat(1_015)}\n\n`, 'i', 'd:7', '\n', LONG, '\n\n', LONG);
    expect(eventPlace(log, '7')).toBe(1_030 + LONG.length);
    log.trim(0, 1_024);
    expect([log.start, eventPlace(log, '7')]).toEqual([1_024, undefined]);
    // Its first line is not whole, so that it counts for nothing.
    const cut = logOf('x'.repeat(1_024), 'id:7\n\nid:8\n\n');
    cut.trim(0, 1_024);
    expect([cut.start, eventPlace(cut, '7'), eventPlace(cut, '8')]).toEqual([1_024, undefined, 1_036]);
  });
});

/** Some bytes, and how often one of them is read, or Node.js searches them. */
function counted(bytes: Buffer) {
  const count = { reads: 0, searches: 0 };
  const proxy: Buffer = new Proxy(bytes, {
    get(target, key) {
      if (key === 'subarray') return () => proxy;
      if (typeof key === 'string' && /^-?\d+$/.test(key)) count.reads += 1;
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== 'function') return value;
      count.searches += 1;
      return value.bind(target);
    },
  });
  return { count, proxy };
}

const FILLINGS = [
  ...['\n', '\r', '\r\n', '7', 'id', 'id:7', 'id:7\n', 'id: 7\n', 'id:7\nx\n', ' 7', ':7', 'id\n'],
  ...['id:7\nid:8\n\n', 'a'.repeat(99), `id:7\n${'x'.repeat(300)}\n`, `7${'x'.repeat(300)}`],
  `id:7\n${'x\n'.repeat(3_000)}id\n\n`,
];

test('the search for an event takes a few steps for each byte, whatever the log is full of', () => {
  const length = 16_384;
  for (const text of FILLINGS) {
    const { count, proxy } = counted(Buffer.from(text.repeat(length / text.length), 'latin1'));
    const read = (at: number) => (at < proxy.length ? { bytes: proxy, isInside: false } : undefined);
    for (const id of ['7', 'a'.repeat(4_000)]) {
      Object.assign(count, { reads: 0, searches: 0 });
      expect(eventPlace({ start: 0, read }, id)).toBeUndefined();
      expect(count.reads).toBeLessThan(8 * length);
      expect(count.searches).toBeLessThanOrEqual(length / 256 + 1);
    }
  }
});

test('kept answers go, the oldest first, when a run needs their memory', async () => {
  const kept = new KeptRuns(60_000, heldBytes(100_000));
  const begin = (key: string) => {
    const run = runOf(nameOf(key), { bound: kept.bound });
    run.sent();
    run.beginStream(new Map());
    say(run, `data: ${'x'.repeat(32_000)}\n\n`);
    return run;
  };
  for (const key of ['old', 'new']) {
    const run = begin(key);
    await end(run);
    kept.keep(key, run);
  }
  const live = begin('live');
  expect([kept.get('old'), live.stream.log.start]).toEqual([undefined, 0]);
  expect(kept.get('new')?.stream.log.start).toBe(0);
});

test('a page of a log is used again if nobody has a part of it; what was lent stays as it was', () => {
  const largest = 32_768;
  const log = new RunLog(heldBytes(1 << 20));
  const push = (letter: string) => {
    log.push(Buffer.alloc(largest, letter), false);
    log.trim(1.5 * largest, log.end);
    return log.read(log.start)?.bytes;
  };
  const lent = push('a') && log.lend(0)?.bytes;
  const second = push('b');
  push('c');
  const later = [...'de'].map(push);
  expect(lent).toEqual(Buffer.alloc(largest, 'a'));
  expect(later.map((bytes) => bytes?.buffer === second?.buffer)).toContain(true);
  expect(log.read(log.start)?.bytes).toEqual(Buffer.alloc(largest, 'e'));
});

const ENDED = new Problem('session_ended', 'Signed out.');
const newStream = () => new RunStream({ bound: heldBytes(1 << 20), maxBytes: 65_536 });

test('a reader that is ended inside an event is cut, whether it came before that or reads it from the log', () => {
  const stream = newStream();
  /** Adds a reader; the returned function ends it, and tells whether it is cut. */
  const read = () => {
    const sink = new RecordingSink();
    const reader = stream.read(sink, 0, () => {});
    return () => {
      reader.end(ENDED);
      return [sink.end, sink.isCut];
    };
  };
  const [whole, cut] = [false, true].map((isCut) => [ENDED.code, isCut]);
  stream.write(Buffer.from('data: 1\n\n'), false);
  expect(read()()).toEqual(whole);
  const early = read();
  stream.write(Buffer.from('data: 2'), true);
  expect([early(), read()()]).toEqual([cut, cut]);
  stream.write(Buffer.from('\n\n'), false);
  expect(read()()).toEqual(whole);
});

test('a reader that is ended while another one is given bytes gets none of them', () => {
  const stream = newStream();
  const [first, second, third] = [new RecordingSink(), new RecordingSink(), new RecordingSink()];
  const ends: (() => void)[] = [];
  // The first one and the one after it are ended, both from the loop over all.
  first.write = () => ends.slice(0, 2).map((endOne) => endOne());
  for (const sink of [first, second, third]) {
    const reader = stream.read(sink, 0, () => {});
    ends.push(() => reader.end(ENDED));
  }
  stream.write(Buffer.from('data: 1\n\n'), false);
  expect([second.text, third.text]).toEqual(['', 'data: 1\n\n']);
});

test.each([
  ['no heartbeat before what it has not got', true],
  ['what comes while there is no memory to keep it for later', false],
])('a reader that can take no more gets %s', (_what, hasRoom) => {
  const stream = new RunStream({ bound: { take: () => hasRoom, release() {} }, maxBytes: 65_536 });
  stream.open({ full() {}, drained() {}, mayBeat: () => true, closed() {} });
  const sink = new RecordingSink();
  stream.read(sink, 0, () => {});
  sink.hold();
  stream.write(Buffer.from('data: 1\n\n'), false);
  expect([sink.text, sink.source?.mayBeat()]).toEqual(hasRoom ? ['', false] : ['data: 1\n\n', true]);
  sink.release();
  expect([sink.text, sink.source?.mayBeat()]).toEqual(['data: 1\n\n', true]);
});

test('a client that has not taken the end of its stream is cut when its session ends', async () => {
  const run = runOf(nameOf('k'));
  run.sent();
  run.beginStream(new Map());
  const sink = new RecordingSink();
  // It does not close.
  sink.complete = () => {};
  const stop = new AbortController();
  void run.attach({ stop, bindToSession: () => () => {} }).read(sink, 0);
  await end(run);
  stop.abort(ENDED);
  expect([sink.end, sink.isCut]).toEqual([ENDED.code, true]);
});

test('each user has so many readers, and one more ends the oldest', () => {
  const readers = userReaders();
  const add = (user: string) => {
    const stop = new AbortController();
    return { stop, release: readers.add(user, stop) };
  };
  const all = Array.from({ length: MAX_READERS_PER_USER }, () => add('ada'));
  const other = add('grace');
  for (let n = 0; n < 2; n++) all[3]?.release();
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

test('a run without readers lets go of its last session when a reader comes back, or when it ends', async () => {
  const run = runOf(nameOf('k'));
  const calls: string[] = [];
  const bindToSession = () => {
    calls.push('bound');
    return () => void calls.push('released');
  };
  run.sent();
  run.beginStream(new Map());
  const leave = () => run.attach({ stop: new AbortController(), bindToSession }).leave();
  leave();
  expect(calls.splice(0)).toEqual(['bound']);
  leave();
  expect(calls.splice(0)).toEqual(['released', 'bound']);
  await end(run);
  expect(calls).toEqual(['released']);
  readerOf(run);
  expect(calls).toEqual(['released']);
});
