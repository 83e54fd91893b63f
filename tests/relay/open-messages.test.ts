import { expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { openMessages } from '../../src/relay/message/open-messages.ts';

const DRAINING = new Problem('draining', 'Over.');

test('live streams are not counted as messages, and each of both is removed once', () => {
  const open = openMessages();
  const removes = [
    open.add(new AbortController(), 'a'),
    open.add(new AbortController(), 'a', 'live'),
    open.add(new AbortController(), 'b'),
  ];
  expect(open.count()).toBe(2);
  for (const remove of [...removes, ...removes]) remove();
  expect(open.count()).toBe(0);
});

test('endKinds ends what is of these kinds and nothing else, and also what is added later', () => {
  const open = openMessages();
  const [message, live, late] = [new AbortController(), new AbortController(), new AbortController()];
  open.add(message, 'a');
  open.add(live, 'a', 'live');
  open.endKinds(['live'], DRAINING);
  open.add(late, 'a', 'live');
  expect([live.signal.reason, late.signal.reason, message.signal.aborted]).toEqual([
    DRAINING,
    DRAINING,
    false,
  ]);
  open.endSession('b', DRAINING);
  expect(message.signal.aborted).toBe(false);
  open.endSession('a', DRAINING);
  expect(message.signal.aborted).toBe(true);
});
