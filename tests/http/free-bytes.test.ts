import { expect, test } from '@jest/globals';
import { freeBytes } from '../../src/http/body.ts';

test('frees bytes that have their memory for themselves, and can be called again', () => {
  const bytes = Buffer.from(new ArrayBuffer(100_000));
  freeBytes(bytes);
  freeBytes(bytes);
  expect([bytes.length, bytes.buffer.byteLength]).toEqual([0, 0]);
});

test('leaves bytes that share their memory with others', () => {
  const whole = Buffer.alloc(100_000, 'a');
  const pooled = Buffer.from('pooled');
  for (const bytes of [whole.subarray(0, 50_000), whole.subarray(50_000), pooled]) freeBytes(bytes);
  freeBytes(Buffer.from(new SharedArrayBuffer(10)));
  expect([whole.toString(), pooled.toString()]).toEqual(['a'.repeat(100_000), 'pooled']);
});
