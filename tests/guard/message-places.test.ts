import { describe, expect, test } from '@jest/globals';
import { memoryStreamLeases } from '../../src/pace/memory-stream-leases.ts';
import { messagePlaces } from '../../src/pace/message-places.ts';
import { places } from '../../src/pace/places.ts';

const ADA = { user: 'ada' };
const of = (perUser: number) => places(memoryStreamLeases(), { perUser, perAddress: 1 });
const refusal = (promise: Promise<unknown>) =>
  promise.then(
    () => 'none',
    ({ code, message }) => `${code}: ${message}`,
  );

describe('the place of a message', () => {
  test('is one for its stream, if there is one', async () => {
    const streams = of(1);
    const place = await messagePlaces(streams, of(1))(ADA);
    await place.keep();
    expect(await refusal(streams(ADA))).toContain('too_many_streams');
    place.release();
    place.release();
    await streams(ADA);
  });

  test('is one for its body if there is none, and becomes one for its stream if that is free by then', async () => {
    const streams = of(1);
    const take = messagePlaces(streams, of(1));
    const first = await take(ADA);
    const second = await take(ADA);
    const full = 'too_many_streams: You already have 1 open streams.';
    expect(await refusal(take(ADA))).toBe(full);
    expect(await refusal(Promise.resolve(second.keep()))).toBe(full);
    first.release();
    await second.keep();
    expect(await refusal(streams(ADA))).toBe(full);
    // The place for a body is free again.
    const third = await take(ADA);
    second.release();
    third.release();
    await streams(ADA);
  });

  test('is refused at once if no message can be joined', async () => {
    const take = messagePlaces(of(1));
    await take(ADA);
    expect(await refusal(take(ADA))).toContain('too_many_streams');
  });
});
