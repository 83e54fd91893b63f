import { expect, test } from '@jest/globals';
import { turns } from '../../src/http/read-json.ts';

test('callers have their turns in their order, each in another round of the event loop', async () => {
  let round = 0;
  const count = () => {
    round += 1;
    if (isCounting) setImmediate(count);
  };
  let isCounting = true;
  setImmediate(count);
  const nextTurn = turns();
  const had: [caller: number, round: number][] = [];
  const ask = async (caller: number) => {
    await nextTurn();
    had.push([caller, round]);
  };
  await Promise.all([1, 2, 3].map(ask));
  await ask(4);
  isCounting = false;
  expect(had.map(([caller]) => caller)).toEqual([1, 2, 3, 4]);
  expect(new Set(had.map(([, at]) => at)).size).toBe(4);
});
