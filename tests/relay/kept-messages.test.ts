import { expect, test } from '@jest/globals';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import {
  type HealableMessage,
  type MessageHealingOptions,
  messageHealing,
} from '../../src/routes/message-healing.ts';

test('kept messages take at most half of the bytes that may be held', () => {
  const held = heldBytes(1_000);
  const options: Partial<MessageHealingOptions> = { resume: true, held };
  const keep = messageHealing(options as MessageHealingOptions);
  const message: Partial<HealableMessage> = {
    bot: 'acme/helper',
    request: { path: '/m', headers: {}, body: Buffer.alloc(300) },
    locals: {} as HealableMessage['locals'],
  };
  const keepOne = () => keep(message as HealableMessage);
  const first = keepOne();
  expect(typeof first?.healer).toBe('function');
  expect(keepOne()?.healer).toBe('no_room');
  expect(held.bytes()).toBe(300);
  first?.release();
  expect(held.bytes()).toBe(0);
  // What streams hold counts, too.
  expect(held.take(800)).toBe(true);
  expect(keepOne()?.healer).toBe('no_room');
  held.release(800);
  expect(typeof keepOne()?.healer).toBe('function');
});
