import { describe, expect, test } from '@jest/globals';
import { readUIMessageStream, type UIMessageChunk } from 'ai';
import fc from 'fast-check';
import { answerChunks } from '../../src/client/ai-sdk/answer-chunks.ts';
import type { AnswerChunk } from '../../src/client/ai-sdk/chat-types.ts';
import { answerParts } from '../../src/client/channel/answer-parts.ts';
import { textOf } from '../../src/client/channel/channel-state.ts';
import type { MessagePart } from '../../src/client/channel/channel-types.ts';
import type { BotEvent, Guards } from '../../src/client/transport/bot-event.ts';
import { eventReader } from '../../src/client/transport/known-events.ts';
import { deltaOf, typeOf } from '../harness/service/bot-runs.ts';

const read = eventReader({ 'acme.chart': () => true } as unknown as Guards);
const eventOf = (fact: object): BotEvent => {
  const eventType = 'acme.chart' in fact ? 'acme.chart' : typeOf(fact);
  return read({ eventType, fact }, 'message', undefined);
};
const startOf = (messageId: string) => ({ messageStart: { message: { messageId } } });
const completeOf = (text: string, messageId = 'm1') => ({
  messageComplete: { message: { messageId, text } },
});
const CALL = { processId: 'p', callSeq: 1, toolCall: { toolName: 'clock', parameter: { zone: 'UTC' } } };
const DONE = { toolCallComplete: { ...CALL, toolCallResult: 12 } };
const ASKED = { toolCallId: 'call-1', toolName: 'clock', parameter: {} };

/** The parts that a channel shows of an answer with these facts. */
function partsOf(facts: readonly object[]): MessagePart[] {
  const { take } = answerParts();
  return facts.reduce<MessagePart[]>((parts, fact) => take(eventOf(fact)).parts ?? parts, []);
}

/** The chunks that the AI SDK gets of it. */
function chunksOf(facts: readonly object[]): AnswerChunk[] {
  const { take, end } = answerChunks();
  const taken = facts.flatMap((fact) => take(eventOf(fact)));
  return [{ type: 'start', messageMetadata: {} }, { type: 'start-step' }, ...taken, ...end()];
}

/** The parts that the AI SDK makes of chunks. */
async function partsIn(chunks: readonly UIMessageChunk[]) {
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  let parts: object[] = [];
  for await (const message of readUIMessageStream({ stream, terminateOnError: true })) parts = message.parts;
  return parts.slice(1);
}

async function expectSameInAiSdk(facts: readonly object[]): Promise<void> {
  const shown = partsOf(facts).filter((part) => part.type !== 'text' || part.text !== '');
  expect(await partsIn(chunksOf(facts))).toEqual(shown.map((part) => expect.objectContaining(part)));
}

test.each([
  ['pieces', [deltaOf('You'), deltaOf(' said')], 'You said'],
  ['a whole text', [completeOf('You said')], 'You said'],
  ['pieces, then the whole', [startOf('m1'), deltaOf('You'), completeOf('You said')], 'You said'],
  [
    'pieces that the whole text corrects',
    [deltaOf('You '), deltaOf('sed'), completeOf('You said')],
    'You said',
  ],
  ['pieces that the whole text makes shorter', [deltaOf('You said '), completeOf('You said')], 'You said'],
  ['an empty text', [startOf('m1'), completeOf('')], ''],
  [
    'several messages, each a paragraph',
    [deltaOf('One', '1'), completeOf('One.', '1'), deltaOf('Two', '2'), completeOf('Two.', '2')],
    'One.\n\nTwo.',
  ],
  [
    'two messages whose pieces alternate',
    [deltaOf('O', '1'), deltaOf('T', '2'), deltaOf('ne', '1'), deltaOf('wo', '2')],
    'One\n\nTwo',
  ],
  [
    'a message that comes again from its start, as after a resumption',
    [startOf('1'), deltaOf('You', '1'), startOf('1'), deltaOf('Yo', '1'), deltaOf('u said', '1')],
    'You said',
  ],
  [
    'a message that comes again behind a whole one',
    [completeOf('One.', '1'), startOf('2'), deltaOf('Tw', '2'), startOf('2'), deltaOf('Two', '2')],
    'One.\n\nTwo',
  ],
  [
    'a message that comes again as another one',
    [deltaOf('You', '1'), startOf('1'), deltaOf('We', '1')],
    'We',
  ],
  ['a message that goes on after its end', [completeOf('One', '1'), deltaOf(' more', '1')], 'One more'],
  [
    'events of which some have no text',
    [
      { runInit: {} },
      { messageDelta: null },
      { messageDelta: { message: { text: 5 } } },
      deltaOf('You'),
      { runDone: {} },
    ],
    'You',
  ],
  ['calls of tools', [{ toolCallStart: CALL }, deltaOf('sed'), DONE, completeOf('said')], 'said'],
])('the text of an answer is made of %s, in a channel and in the AI SDK', async (_, facts, text) => {
  expect(textOf({ parts: partsOf(facts) })).toBe(text);
  await expectSameInAiSdk(facts);
});

test('the AI SDK shows what a channel shows of any answer', async () => {
  const id = fc.constantFrom('1', '2');
  const text = fc.constantFrom('a', ' b', 'ab');
  const piece = fc.tuple(text, id);
  const others = [
    ...[{ toolCallStart: CALL }, DONE, { runInit: {} }, { messageDelta: null }, { runDone: {} }],
    ...[{ 'acme.chart': { points: [1] } }, { toolCallConsent: { pendingCalls: [ASKED] } }],
  ];
  const some: fc.Arbitrary<object> = fc.oneof(
    { weight: 4, arbitrary: piece.map(([text, id]) => deltaOf(text, id)) },
    { weight: 2, arbitrary: piece.map(([text, id]) => completeOf(text, id)) },
    { weight: 1, arbitrary: fc.constantFrom<object>(...others) },
  );
  // A tool that has answered does not begin again.
  const inOrder = (facts: readonly object[]) =>
    facts.filter((fact, at) => !('toolCallStart' in fact && facts.slice(0, at).includes(DONE)));
  const answers = fc.array(some, { maxLength: 10 }).map(inOrder);
  await fc.assert(fc.asyncProperty(answers, expectSameInAiSdk), { numRuns: 300 });
});

test('a tool that is called is one part, with its input and then its output', async () => {
  const part = { type: 'dynamic-tool', toolName: 'clock', toolCallId: 'p-1', input: { zone: 'UTC' } };
  expect(partsOf([{ toolCallStart: CALL }])).toEqual([{ ...part, state: 'input-available' }]);
  const output = { ...part, state: 'output-available', output: 12 };
  expect(partsOf([{ toolCallStart: CALL }, deltaOf('It is'), DONE])).toEqual([
    output,
    { type: 'text', text: 'It is' },
  ]);
  expect(partsOf([DONE])).toEqual([output]);
  // The bot service calls it, so the page is not asked to.
  expect(chunksOf([{ toolCallStart: CALL }])[2]).toMatchObject({ providerExecuted: true, dynamic: true });
});

test('calls that wait for the user are parts, and so is an event of the application', async () => {
  const pendingCalls = [ASKED, { ...ASKED, toolCallId: 'call-2' }];
  const facts = [{ toolCallConsent: { pendingCalls } }, { 'acme.chart': { points: [1] } }];
  expect(partsOf(facts)).toMatchObject([
    { type: 'dynamic-tool', toolCallId: 'call-1', state: 'approval-requested' },
    { type: 'dynamic-tool', toolCallId: 'call-2', state: 'approval-requested' },
    { type: 'data-acme.chart', data: { 'acme.chart': { points: [1] } } },
  ]);
  await expectSameInAiSdk(facts);
});

test('a part that an event does not change stays the same object', () => {
  const { take } = answerParts();
  const [first] = take(eventOf(deltaOf('One', '1'))).parts ?? [];
  expect(take(eventOf(deltaOf('Two', '2'))).parts?.[0]).toBe(first);
});

describe('in the AI SDK', () => {
  test('a text is over when its answer is, and with its own end at the latest', () => {
    const types = (facts: readonly object[]) =>
      chunksOf(facts)
        .map(({ type }) => type)
        .slice(2);
    const whole = ['text-start', 'text-delta', 'text-end', 'finish-step', 'finish'];
    expect(types([deltaOf('You')])).toEqual(whole);
    expect(types([deltaOf('You'), completeOf('You'), { runDone: {} }])).toEqual(whole);
  });

  test('the end of an answer names its last text, to which feedback belongs', () => {
    const facts = [completeOf('One', '1'), completeOf('Two', '2')];
    expect(chunksOf(facts).at(-1)).toEqual({ type: 'finish', messageMetadata: { messageId: '2' } });
  });
});

test('a run that has failed throws what the run says', () => {
  for (const make of [partsOf, chunksOf]) {
    const fail = (error: object) => () => make([{ runError: { error } }]);
    expect(fail({ message: 'Too many steps.', code: 'STEPS' })).toThrow(
      expect.objectContaining({ message: 'Too many steps.', code: 'STEPS', status: 200 }),
    );
    expect(fail({})).toThrow(expect.objectContaining({ code: 'unexpected_response' }));
  }
});
