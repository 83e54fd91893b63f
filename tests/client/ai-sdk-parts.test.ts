import { describe, expect, test } from '@jest/globals';
import { readUIMessageStream, type UIMessageChunk } from 'ai';
import { answerChunks } from '../../src/client/ai-sdk/answer-chunks.ts';
import type { AnswerChunk } from '../../src/client/ai-sdk/chat-types.ts';
import { answerParts } from '../../src/client/channel/answer-parts.ts';
import type { MessagePart } from '../../src/client/channel/channel-types.ts';
import type { BotEvent, Guards } from '../../src/client/transport/bot-event.ts';
import { eventReader } from '../../src/client/transport/known-events.ts';
import { deltaOf, typeOf } from '../harness/service/bot-runs.ts';

const guards = { 'acme.chart': () => true } as unknown as Guards;
const read = eventReader(guards);
const eventOf = (fact: object): BotEvent =>
  read(
    'acme.chart' in fact ? { eventType: 'acme.chart', fact } : { eventType: typeOf(fact), fact },
    'message',
    undefined,
  );

const startOf = (messageId: string) => ({ messageStart: { message: { messageId } } });
const completeOf = (text: string, messageId = 'm1') => ({
  messageComplete: { message: { messageId, text } },
});
const CALL = { processId: 'p', callSeq: 1, toolCall: { toolName: 'clock', parameter: { zone: 'UTC' } } };
const ASKED = { toolCallId: 'call-1', toolName: 'clock', parameter: {} };

/** The chunks of an answer with these facts. */
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

/** The parts that a channel shows. */
function partsOfChannel(facts: readonly object[]): MessagePart[] {
  const { take } = answerParts();
  return facts.reduce<MessagePart[]>((parts, fact) => take(eventOf(fact)).parts ?? parts, []);
}

const isShown = (part: MessagePart) => part.type !== 'text' || part.text !== '';

describe('the AI SDK shows what a channel shows of an answer with', () => {
  test.each([
    ['pieces of text', [deltaOf('You'), deltaOf(' said')]],
    ['a whole text', [completeOf('You said')]],
    [
      'pieces, and then the whole text',
      [startOf('m1'), deltaOf('You'), deltaOf(' said'), completeOf('You said')],
    ],
    ['the rest of a text in its end', [deltaOf('You'), completeOf('You said')]],
    ['a text that its end corrects', [deltaOf('You '), deltaOf('sed'), completeOf('You said')]],
    ['a text that its end makes shorter', [deltaOf('You said '), completeOf('You said')]],
    ['an empty text', [startOf('m1'), completeOf('')]],
    [
      'several texts',
      [deltaOf('One', '1'), completeOf('One.', '1'), deltaOf('Two', '2'), completeOf('Two.', '2')],
    ],
    [
      'two texts whose pieces alternate',
      [deltaOf('O', '1'), deltaOf('T', '2'), deltaOf('ne', '1'), deltaOf('wo', '2')],
    ],
    [
      'a text that comes again',
      [startOf('1'), deltaOf('You', '1'), startOf('1'), deltaOf('Yo', '1'), deltaOf('u said', '1')],
    ],
    [
      'a text that comes again after its end',
      [completeOf('One', '1'), startOf('1'), deltaOf('One', '1'), completeOf('One', '1')],
    ],
    ['a text that goes on after its end', [completeOf('One', '1'), deltaOf(' more', '1')]],
    [
      'another text when it comes again',
      [deltaOf('A', '0'), deltaOf('You', '1'), startOf('1'), deltaOf('We', '1')],
    ],
    ['a call of a tool', [{ toolCallStart: CALL }, { toolCallComplete: { ...CALL, toolCallResult: 12 } }]],
    ['the end of a call alone', [{ toolCallComplete: { ...CALL, toolCallResult: 12 } }]],
    [
      'a call before a text that is corrected',
      [{ toolCallStart: CALL }, deltaOf('sed'), { toolCallComplete: CALL }, completeOf('said')],
    ],
    [
      'calls that wait for the user',
      [{ toolCallConsent: { pendingCalls: [ASKED, { ...ASKED, toolCallId: 'call-2' }] } }],
    ],
    ['an event of the application', [{ 'acme.chart': { points: [1] } }, deltaOf('See')]],
    ['events that say nothing', [{ runInit: {} }, { messageDelta: null }, deltaOf('You'), { runDone: {} }]],
  ])('%s', async (_, facts) => {
    const ofChannel = partsOfChannel(facts).filter(isShown);
    expect(await partsIn(chunksOf(facts))).toEqual(ofChannel.map((part) => expect.objectContaining(part)));
  });
});

test('a text is over when its answer is, and with its own end at the latest', () => {
  const types = (facts: readonly object[]) =>
    chunksOf(facts)
      .map(({ type }) => type)
      .slice(2);
  const ends = ['text-end', 'finish-step', 'finish'];
  expect(types([deltaOf('You')])).toEqual(['text-start', 'text-delta', ...ends]);
  expect(types([deltaOf('You'), completeOf('You'), { runDone: {} }])).toEqual([
    'text-start',
    'text-delta',
    ...ends,
  ]);
});

test('a tool is called by the bot service, so the page is not asked to call it', () => {
  expect(chunksOf([{ toolCallStart: CALL }])[2]).toMatchObject({ providerExecuted: true, dynamic: true });
});

test('the end of an answer names its last text, to which feedback belongs', () => {
  const facts = [completeOf('One', '1'), completeOf('Two', '2')];
  expect(chunksOf(facts).at(-1)).toEqual({ type: 'finish', messageMetadata: { messageId: '2' } });
});

test('a run that has failed throws what the run says', () => {
  const failed = { runError: { error: { message: 'Too many steps.', code: 'STEPS' } } };
  expect(() => chunksOf([failed])).toThrow(
    expect.objectContaining({ message: 'Too many steps.', code: 'STEPS' }),
  );
});
