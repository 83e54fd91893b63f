import { describe, expect, test } from '@jest/globals';
import { createParser } from 'eventsource-parser';
import { streamPosition } from '../../src/relay/message/stream-position.ts';

const SEEDS = 2000;
const MIB = 1024 * 1024;
const PROBE = 'event: probe\ndata: p\n\n';
const PROBE_ALONE = JSON.stringify([{ event: 'probe', data: 'p' }]);

/** What a stream is made of, as latin1: each character is one byte. */
const TOKENS = [
  ...['\n', '\r', '\r\n', '\n\n', '\r\r', ':', ' ', 'i', 'd', 'x', '\0'],
  ...['id', 'id:', 'id: 7', 'id\n', 'ide:', 'Id:', ' id:', ':id:', 'idx', '\nid', '\rid:'],
  ...['data: x', 'data:', 'event: e', 'retry: 5', ': ping', ':\n', 'data: x\n\n'],
  ...['\xef\xbb\xbf', '\xef', '\xbb', '\xbf', '\xef\xbb', Buffer.from('😀').toString('latin1')],
];
const BEGINNINGS = ['', '', '\xef\xbb\xbf', '\xef\xbb\xbfid', '\xef\xbb', '\xef', '\xef\xbb\xbf\xef\xbb\xbf'];

/** Numbers from 0 up to 1, the same ones for the same seed (mulberry32). */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A random stream, in the pieces in which it arrives. */
function randomPieces(seed: number): Buffer[] {
  const random = randomNumbers(seed);
  const oneOf = (list: readonly string[]) => list[Math.floor(random() * list.length)] as string;
  let stream = oneOf(BEGINNINGS);
  for (let left = Math.floor(random() * 40); left > 0; left--) stream += oneOf(TOKENS);
  const bytes = Buffer.from(stream, 'latin1');
  const longest = 1 + Math.floor(random() * 12);
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const length = Math.floor(random() * (longest + 1));
    pieces.push(bytes.subarray(at, at + length));
    at += length;
  }
  return pieces;
}

/** The same answers, from the whole stream so far and one byte at a time. */
function naivePosition(bytes: Buffer) {
  const text = bytes.toString('latin1');
  const halfBom = text === '\xef' || text === '\xef\xbb';
  let line = '';
  let eventHasFields = false;
  let sawId = false;
  let afterCr = false;
  for (const byte of text.startsWith('\xef\xbb\xbf') ? text.slice(3) : text) {
    const belongsToCr = afterCr && byte === '\n';
    afterCr = byte === '\r';
    if (belongsToCr) continue;
    if (byte === '\n' || byte === '\r') {
      if (line === 'id') sawId = true;
      if (line === '') eventHasFields = false;
      else if (!line.startsWith(':')) eventHasFields = true;
      line = '';
    } else {
      line += byte;
      if (line === 'id:') sawId = true;
    }
  }
  return {
    atEventBoundary: line === '' && !eventHasFields && !halfBom,
    sawId,
    endsWithLf: text === '' || text.endsWith('\n'),
  };
}

/** What a client's parser emits for `bytes`, and for a whole event that follows them. */
function parsed(bytes: Buffer) {
  const events: { event?: string | undefined; data: string; id?: string | undefined }[] = [];
  const parser = createParser({ onEvent: (event) => events.push(event) });
  parser.feed(bytes.toString('latin1'));
  const before = [...events];
  parser.feed(PROBE);
  return { before, probe: events.slice(before.length).map(({ event, data }) => ({ event, data })) };
}

/** Runs `check` after every piece of every random stream. */
function afterEveryPiece(check: (position: ReturnType<typeof streamPosition>, soFar: Buffer) => void) {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const pieces = randomPieces(seed);
    const position = streamPosition();
    pieces.forEach((piece, index) => {
      position.push(piece);
      try {
        check(position, Buffer.concat(pieces.slice(0, index + 1)));
      } catch (cause) {
        const sofar = JSON.stringify(pieces.slice(0, index + 1).map((bytes) => bytes.toString('latin1')));
        throw new Error(`seed ${seed}, after ${sofar}: ${(cause as Error).message}`, { cause });
      }
    });
  }
}

describe('the position in a stream, however it is split,', () => {
  test('is the one that reading byte by byte finds (S8)', () => {
    afterEveryPiece((position, soFar) => {
      const found = {
        atEventBoundary: position.atEventBoundary(),
        sawId: position.sawId(),
        endsWithLf: position.endsWithLf(),
      };
      const naive = naivePosition(soFar);
      // Comparing first is much faster than `expect` for every piece.
      if (JSON.stringify(found) !== JSON.stringify(naive)) expect(found).toEqual(naive);
    });
  });

  test('is an event boundary only where a parser takes the next event for itself (S11)', () => {
    let boundaries = 0;
    afterEveryPiece((position, soFar) => {
      if (!position.atEventBoundary()) return;
      boundaries++;
      const { probe } = parsed(soFar);
      if (JSON.stringify(probe) !== PROBE_ALONE) expect(probe).toEqual(JSON.parse(PROBE_ALONE));
    });
    expect(boundaries).toBeGreaterThan(SEEDS);
  });

  test('has seen an id whenever a parser has emitted one (S11)', () => {
    let ids = 0;
    afterEveryPiece((position, soFar) => {
      if (!parsed(soFar).before.some(({ id }) => id !== undefined)) return;
      ids++;
      if (!position.sawId()) throw new Error('no id was seen');
    });
    expect(ids).toBeGreaterThan(SEEDS / 4);
  });
});

describe('the position of a long chunk', () => {
  test.each([
    ['comments', '', ':\n'],
    ['comments after one bare CR', '\r', ':\n'],
    ['comments with bare CRs after one LF', '\n', ':\r'],
    ['names that begin like an id', '', 'idx\n'],
  ])('is found in time that is linear in its length: %s (S8)', (_name, beginning, pattern) => {
    /** The shortest of a few tries, in µs of this process alone: what else the machine does takes none of them. */
    const timeFor = (length: number) => {
      const chunk = Buffer.concat([Buffer.from(beginning), Buffer.alloc(length, pattern)]);
      const tries = Array.from({ length: 4 }, () => {
        const position = streamPosition();
        const before = process.cpuUsage();
        position.push(chunk);
        const { user, system } = process.cpuUsage(before);
        expect(position.sawId()).toBe(false);
        return user + system;
      });
      return Math.min(...tries);
    };
    const long = timeFor(MIB);
    // A sixteenth of the length: were the time its square, this would be a 256th of it.
    expect(long / timeFor(MIB / 16)).toBeLessThan(64);
  });
});

test('an id is seen behind a field whose name only begins like one, in one piece', () => {
  for (const lineEnd of ['\n', '\r', '\r\n']) {
    const position = streamPosition();
    position.push(Buffer.from(['data: a', 'idx: 1', 'id: 2', '', ''].join(lineEnd)));
    expect(position.sawId()).toBe(true);
  }
});
