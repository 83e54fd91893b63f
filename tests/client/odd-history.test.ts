import { expect, test } from '@jest/globals';
import { followHistory } from '../../src/client/channel/follow-history.ts';
import { eventReader } from '../../src/client/transport/known-events.ts';

const read = eventReader();

/** What a page shows of a history of these events, each of the run `run`. */
async function shownOf(events: readonly [string, string, object][]) {
  const shown: string[] = [];
  async function* history() {
    for (const [requestId, eventType, fact] of events)
      yield read({ eventType, requestId, fact }, 'message', 'id');
  }
  const { settled } = followHistory(
    { metadata: async () => ({}), history },
    {
      onQuestion: (text) => shown.push(`question ${text}`),
      onAnswer() {
        shown.push('answer');
        return { onEvent: ({ eventType }) => shown.push(eventType), onState() {}, onError() {} };
      },
      onError: (error) => shown.push(String(error)),
    },
  );
  await settled;
  return shown;
}

const USER = 'asgard.message.user';
const COMPLETE = 'asgard.message.complete';
const ANSWER = { messageComplete: { message: { text: 'A', messageId: 7 } } };

test.each<[string, object, string]>([
  ['files of a wrong type', { messageUser: { text: 'Q?', blobIds: [{ id: 'x' }] } }, 'question Q?'],
  ['a text of a wrong type', { messageUser: { text: 1 } }, 'question '],
  ['another shape', { user: 'Q?' }, 'question '],
])('a question with %s stays a question', async (_, fact, question) => {
  const events: [string, string, object][] = [
    ['1', USER, fact],
    ['1', COMPLETE, ANSWER],
  ];
  expect(await shownOf(events)).toEqual([question, 'answer', COMPLETE]);
});

test('an event that is not known begins no answer, unless the run has failed', async () => {
  const events: [string, string, object][] = [
    ['1', 'acme.note', {}],
    ['2', COMPLETE, ANSWER],
    ['2', 'acme.note', {}],
    ['3', 'asgard.run.error', {}],
  ];
  const rest = ['answer', COMPLETE, 'acme.note', 'answer', 'asgard.run.error'];
  expect(await shownOf(events)).toEqual(rest);
});
