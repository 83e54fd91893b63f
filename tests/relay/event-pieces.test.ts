import { describe, expect, test } from '@jest/globals';
import { blocksOf, nextBlock } from '../../src/relay/message/event-blocks.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { push, wholeEvents, wholePiece } from '../../src/relay/message/whole-events.ts';

/** What goes down after each of `pieces`, and how many events each part of it has. */
function division(pieces: readonly string[]) {
  const events = wholeEvents({ maxBytes: 1024, held: heldBytes(1 << 20), onUnheld: () => {} });
  return pieces.map((piece) =>
    push(events, Buffer.from(piece)).map((passed) => {
      const blocks = blocksOf(passed);
      let count = 0;
      while (nextBlock(blocks)) count++;
      return [passed.bytes.toString(), count];
    }),
  );
}

describe('an event of which the beginning is held goes down whole', () => {
  test('with several comments before its blank line', () => {
    const event = 'data: a\n: one\n: two\ndata: b\n\n';
    expect(division(['data: a\n', event.slice('data: a\n'.length)])).toEqual([[], [[event, 1]]]);
  });

  test('if a comment in it begins in the same piece as an LF that comes late', () => {
    expect(division(['data: a\r', '\n: one', '\n\n'])).toEqual([[], [], [['data: a\r\n: one\n\n', 1]]]);
  });
});

test('a block tells where its first line of data begins', () => {
  const blocks = blocksOf(wholePiece(Buffer.from('data: x\n\nid: 1\n: c\ndata: a\ndata: b\n\n')));
  const places: number[] = [];
  while (nextBlock(blocks)) places.push(blocks.dataLine);
  expect(places).toEqual([0, 'data: x\n\nid: 1\n: c\n'.length]);
});
