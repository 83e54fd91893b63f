import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import {
  type AnswerView,
  type FollowedHistory,
  followHistory,
} from '../../src/client/channel/follow-history.ts';
import type { BotEvent } from '../../src/client/transport/bot-event.ts';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

const answer: AnswerView = { onEvent() {}, onState() {}, onError() {} };
const view = { onQuestion() {}, onAnswer: () => answer, onError() {} };

/** The history of a conversation in which an event comes after each of `waits`, in ms, and then nothing. */
function followed(waits: readonly number[], id: (at: number) => string | undefined): FollowedHistory {
  async function* history(): AsyncGenerator<BotEvent, void, void> {
    for (const [at, wait] of waits.entries()) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      yield { known: false, eventType: 'word', id: id(at), runId: 'A', raw: undefined };
    }
    await new Promise(() => {});
  }
  return followHistory({ metadata: async () => ({}), history }, view);
}
/** After how many ms the history has settled. */
async function settledAfter({ settled }: FollowedHistory): Promise<number> {
  const began = Date.now();
  let after: number | undefined;
  settled.then(() => {
    after = Date.now() - began;
  });
  for (let ms = 0; ms < 8_000 && after === undefined; ms += 50) await jest.advanceTimersByTimeAsync(50);
  return after ?? Number.POSITIVE_INFINITY;
}

const OFTEN = Array.from({ length: 200 }, () => 100);

test.each([
  ['0.5 s after the last event that is kept', OFTEN.slice(0, 10), () => 'id', 1_500],
  ['0.5 s after the first event of a run that goes on', OFTEN, () => undefined, 600],
  [
    '0.5 s after the first event of a run that goes on, behind what is kept',
    OFTEN,
    (at: number) => (at < 10 ? 'id' : undefined),
    1_600,
  ],
  ['after 5 s though events that are kept go on', OFTEN, () => 'id', 5_000],
  ['after 5 s without an event', [], () => 'id', 5_000],
])('a history is complete %s', async (_, waits, id, ms) => {
  expect(await settledAfter(followed(waits, id))).toBe(ms);
});
