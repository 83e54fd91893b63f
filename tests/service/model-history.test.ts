import { expect, test } from '@jest/globals';
import type { ModelMessage } from 'ai';
import fc from 'fast-check';
import { messagesFor } from '../../src/service/brains/model-history.ts';

const question = fc.record({ role: fc.constant('user' as const), content: fc.string({ maxLength: 60 }) });
const IDS = ['a', 'b', 'c'];
const id = fc.constantFrom(...IDS);
const text = fc.record({ type: fc.constant('text'), text: fc.string({ maxLength: 60 }) });
const call = fc.record({
  type: fc.constant('tool-call'),
  toolCallId: id,
  toolName: fc.constant('clock'),
  input: fc.constant({}),
});
const resultOf = ({ toolCallId, toolName }: { toolCallId: string; toolName: string }) => ({
  ...{ type: 'tool-result', toolCallId, toolName },
  output: { type: 'text', value: 'noon' },
});
/** At most one call of each id in a message, as providers have it. */
const calls = fc.uniqueArray(call, { maxLength: 3, selector: ({ toolCallId }) => toolCallId });
/** What a model said and called, and the results of some calls. */
const step = fc
  .tuple(fc.array(text, { maxLength: 1 }), calls, fc.subarray(IDS))
  .map(([said, called, done]) => {
    const results = called.filter(({ toolCallId }) => done.includes(toolCallId)).map(resultOf);
    const assistant = { role: 'assistant', content: [...said, ...called] };
    return results.length > 0 ? [assistant, { role: 'tool', content: results }] : [assistant];
  });
const turn = fc
  .tuple(question, fc.array(step, { maxLength: 4 }))
  .map(([asked, steps]) => [asked, ...steps.flat()]);

const MESSAGE = { role: 'user' as const, content: 'And now?' };
const MARK = /^\[Here the conversation is not whole: (\d+) earlier/;
const sizeOf = (messages: readonly ModelMessage[]) => JSON.stringify(messages).length;

/** The turns of what is given to a model: each begins with a message of the user. */
function turnsIn(messages: readonly ModelMessage[]): ModelMessage[][] {
  const turns: ModelMessage[][] = [];
  for (const message of messages)
    if (message.role === 'user') turns.push([message]);
    else turns.at(-1)?.push(message);
  return turns;
}

const partsOf = ({ content }: ModelMessage) => (typeof content === 'string' ? [] : content);
const callIds = (message: ModelMessage) =>
  partsOf(message).flatMap((part) => (part.type === 'tool-call' ? [part.toolCallId] : []));
const resultIds = (message: ModelMessage) =>
  partsOf(message).flatMap((part) => (part.type === 'tool-result' ? [part.toolCallId] : []));
const withoutMark = (messages: readonly ModelMessage[]) =>
  JSON.stringify(messages).replace(/\[Here the conversation is not whole: .*? left out\.\]\\n\\n/, '');

test('of any memory, the model gets whole turns that fit: the newest, the first, and a mark of what is left out', () => {
  fc.assert(
    fc.property(fc.array(turn, { maxLength: 12 }), fc.nat(3000), (remembered, room) => {
      const all = turnsIn(messagesFor(remembered, MESSAGE, 1_000_000)).slice(0, -1);
      const messages = messagesFor(remembered, MESSAGE, room);
      const kept = turnsIn(messages);
      const history = messages.slice(0, -1);
      if (history.length > 0) expect(sizeOf(history)).toBeLessThanOrEqual(room + 200);
      // Each is one of the whole turns, in their order: the first, if it is not one of the newest, and the newest.
      const asTexts = kept.slice(0, -1).map(withoutMark);
      const newest = all.slice(all.length - asTexts.length).map(withoutMark);
      const withFirst = [all[0] ?? [], ...all.slice(all.length - asTexts.length + 1)].map(withoutMark);
      expect([newest.join(), withFirst.join()]).toContain(asTexts.join());
      const [first, last] = [all[0] ?? [], all.at(-1) ?? []];
      if (all.length > 0 && sizeOf(first) + sizeOf(last) + 200 <= room)
        expect([asTexts[0], asTexts.at(-1)]).toEqual([first, last].map(withoutMark));
      // One mark, with the right number, or none if all are there.
      const marks = kept.flatMap(([first]) => MARK.exec(String(first?.content))?.[1] ?? []);
      const leftOut = all.length - asTexts.length;
      expect(marks.map(Number)).toEqual(leftOut > 0 ? [leftOut] : []);
    }),
  );
});

test('of any memory, each call has its result directly after it, no result is without a call, and each turn ends with an answer', () => {
  fc.assert(
    fc.property(fc.array(turn, { maxLength: 8 }), fc.nat(3000), (remembered, room) => {
      const messages = messagesFor(remembered, MESSAGE, room);
      for (const [index, message] of messages.entries()) {
        if (message.role === 'tool') expect(messages[index - 1]?.role).not.toBe('user');
        if (message.role !== 'assistant') continue;
        const until = messages.findIndex(({ role }, at) => at > index && role !== 'tool');
        const results = messages.slice(index + 1, until).flatMap(resultIds);
        expect(results.sort()).toEqual(callIds(message).sort());
      }
      for (const one of turnsIn(messages).slice(0, -1)) expect(one.at(-1)?.role).toBe('assistant');
    }),
  );
});
