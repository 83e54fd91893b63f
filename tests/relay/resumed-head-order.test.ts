import { expect, test } from '@jest/globals';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { resumedHead, takeHead } from '../../src/relay/message/resumed-head.ts';
import { noteSent, resumePointOf, streamCursor } from '../../src/relay/message/stream-cursor.ts';
import { wholePiece } from '../../src/relay/message/whole-events.ts';

const KEPT = 'id: 1\ndata: kept\n\n';
const [A, B] = ['data: a\n\n', 'data: b\n\n'];

/** What is sent of a stream that went on with `resumed`, after it broke behind `before`. */
function wentDownOf(before: string, resumed: string): string {
  const held = heldBytes(1 << 20);
  const cursor = streamCursor({ lastEventId: undefined, held, keepsTail: true });
  noteSent(cursor, wholePiece(Buffer.from(before)));
  const resumption = resumePointOf(cursor);
  if (!resumption) throw new Error('The stream cannot be resumed.');
  const verdict = takeHead(resumedHead(resumption, held), wholePiece(Buffer.from(resumed)));
  if (typeof verdict === 'string') return verdict;
  return verdict.pieces.map(({ bytes }) => bytes.toString()).join('');
}

test('the event of the last id is dropped only before the events after it', () => {
  expect(wentDownOf(KEPT + A + B, KEPT + A + B + KEPT)).toBe(KEPT);
  expect(wentDownOf(KEPT + A + B, A + KEPT + B)).toBe(A + KEPT + B);
});

test('events that were sent are dropped only in their order', () => {
  expect(wentDownOf(KEPT + A + B, B + A)).toBe(B + A);
});

test('another run is known by a whole UUID, even in an event that is sent in parts', () => {
  const uuid = '01234567-89ab-cdef-0123-456789abcdef';
  const event = (requestId: string) =>
    `data: ${JSON.stringify({ eventType: 'kept', requestId, text: 'x'.repeat(2_000) })}`;
  const held = heldBytes(1 << 20);
  const cursor = streamCursor({ lastEventId: undefined, held, keepsTail: true });
  noteSent(cursor, wholePiece(Buffer.from(`id: 1\n${event(uuid)}\n\n`)));
  const resumption = resumePointOf(cursor);
  const verdictOn = (text: string) =>
    resumption &&
    takeHead(resumedHead(resumption, held), { ...wholePiece(Buffer.from(text)), part: 'begins' });
  expect(verdictOn(event(uuid.replace(/f$/, '0')))).toBe('new_run');
  expect(verdictOn(event(uuid))).toMatchObject({ pieces: [{ part: 'begins' }] });
});
