import { describe, expect, test } from '@jest/globals';
import { answerParts } from '../../src/client/channel/answer-parts.ts';
import { textOf } from '../../src/client/channel/channel-state.ts';
import type { MessagePart } from '../../src/client/channel/channel-types.ts';
import { eventReader } from '../../src/client/transport/known-events.ts';
import { deltaOf, typeOf } from '../harness/service/bot-runs.ts';

const read = eventReader();
const completeOf = (text: string, messageId = 'm1') => ({
  messageComplete: { message: { messageId, text } },
});
const startOf = (messageId: string) => ({ messageStart: { message: { messageId } } });

/** The parts of an answer with these facts. */
function partsOf(facts: readonly object[]): MessagePart[] {
  const { take } = answerParts();
  let parts: MessagePart[] = [];
  for (const fact of facts)
    parts = take(read({ eventType: typeOf(fact), fact }, 'message', undefined)).parts ?? parts;
  return parts;
}

describe('the text of an answer', () => {
  test.each([
    ['pieces', [deltaOf('You'), deltaOf(' said')], 'You said'],
    ['a whole text', [completeOf('You said')], 'You said'],
    [
      'pieces and then the whole text',
      [deltaOf('You'), deltaOf(' said'), completeOf('You said')],
      'You said',
    ],
    [
      'pieces that the whole text corrects',
      [deltaOf('You '), deltaOf('sed'), completeOf('You said')],
      'You said',
    ],
    [
      'several messages, each a paragraph',
      [deltaOf('One', '1'), completeOf('One.', '1'), deltaOf('Two', '2'), completeOf('Two.', '2')],
      'One.\n\nTwo.',
    ],
    [
      'a message that comes again from its start, as after a resumption',
      [startOf('1'), deltaOf('You', '1'), startOf('1'), deltaOf('You', '1'), deltaOf(' said', '1')],
      'You said',
    ],
    [
      'a message that comes again behind a whole one',
      [completeOf('One.', '1'), startOf('2'), deltaOf('Tw', '2'), startOf('2'), deltaOf('Two', '2')],
      'One.\n\nTwo',
    ],
    ['empty pieces', [deltaOf(''), deltaOf('You')], 'You'],
    [
      'events without text',
      [
        { runInit: {} },
        { messageStart: { message: { messageId: 'm1' } } },
        { messageDelta: null },
        { messageDelta: { message: { text: 5 } } },
        deltaOf('You'),
        { runDone: {} },
      ],
      'You',
    ],
  ])('is made of %s', (_, facts, text) => {
    expect(textOf({ parts: partsOf(facts) })).toBe(text);
  });

  test('that is failed by its run throws what the run says', () => {
    const fail = (error: object) => () => partsOf([{ runError: { error } }]);
    expect(fail({ message: 'Too many steps.', code: 'STEPS' })).toThrow(
      expect.objectContaining({ message: 'Too many steps.', code: 'STEPS', status: 200 }),
    );
    expect(fail({})).toThrow(expect.objectContaining({ code: 'unexpected_response' }));
  });
});

test('a tool that is called is one part, with its input and then its output', () => {
  const toolCall = { toolName: 'clock', parameter: { zone: 'UTC' } };
  const call = { processId: 'p', callSeq: 1, toolCall };
  const part = { type: 'dynamic-tool', toolName: 'clock', toolCallId: 'p-1', input: { zone: 'UTC' } };
  expect(partsOf([{ toolCallStart: call }])).toEqual([{ ...part, state: 'input-available' }]);
  const both = [
    { toolCallStart: call },
    deltaOf('It is'),
    { toolCallComplete: { ...call, toolCallResult: 12 } },
  ];
  expect(partsOf(both)).toEqual([
    { ...part, state: 'output-available', output: 12 },
    { type: 'text', text: 'It is' },
  ]);
});

test('a part that an event does not change stays the same object', () => {
  const { take } = answerParts();
  const event = (fact: object) => read({ eventType: typeOf(fact), fact }, 'message', undefined);
  const [first] = take(event(deltaOf('One', '1'))).parts ?? [];
  expect(take(event(deltaOf('Two', '2'))).parts?.[0]).toBe(first);
});
