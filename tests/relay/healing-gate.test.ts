import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { type GatePass, healingGate } from '../../src/relay/message/healing-gate.ts';

const BOT = 'acme/helper';
let now = 0;
beforeEach(() => {
  now = 0;
});
afterEach(() => {
  jest.useRealTimers();
});

/** A gate, and a function that enters it and notes in `entered` who was let in. */
function newGate() {
  const gate = healingGate(() => now);
  const entered: string[] = [];
  const passes = new Map<string, GatePass>();
  const enter = async (name: string, { bot = BOT, signal = new AbortController().signal } = {}) => {
    passes.set(name, await gate.enter(bot, signal));
    entered.push(name);
  };
  const pass = (name: string) => passes.get(name) as GatePass;
  return { gate, entered, enter, pass };
}

/** Lets all promises settle that wait for nothing else. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

describe('a gate', () => {
  test('lets one through at a time, in their order, until a resumption has gone on with its run', async () => {
    const { gate, entered, enter, pass } = newGate();
    for (const name of ['a', 'b', 'c', 'd']) void enter(name);
    await settled();
    expect(entered).toEqual(['a']);
    pass('a').leave();
    pass('a').leave();
    await settled();
    expect(entered).toEqual(['a', 'b']);
    gate.proven(BOT);
    await settled();
    expect(entered).toEqual(['a', 'b', 'c', 'd']);
    void enter('e');
    await settled();
    expect(entered).toContain('e');
  });

  test('is shut again a minute after the last good resumption', async () => {
    const { gate, entered, enter } = newGate();
    gate.proven(BOT);
    now = 59_999;
    await enter('a');
    await enter('b');
    now = 60_000;
    for (const name of ['c', 'd']) void enter(name);
    await settled();
    expect(entered).toEqual(['a', 'b', 'c']);
  });

  test('is of one bot', async () => {
    const { gate, entered, enter } = newGate();
    await enter('a');
    await enter('b', { bot: 'acme/other' });
    gate.forbid('acme/other');
    expect([gate.mayHeal(BOT), gate.mayHeal('acme/other')]).toEqual([true, false]);
    expect(entered).toEqual(['a', 'b']);
  });

  test('lets all through once a new run was met, who then find that they may not heal', async () => {
    const { gate, entered, enter } = newGate();
    for (const name of ['a', 'b', 'c']) void enter(name);
    await settled();
    gate.forbid(BOT);
    await settled();
    expect([entered, gate.mayHeal(BOT)]).toEqual([['a', 'b', 'c'], false]);
  });

  test('is kept for two seconds at most once the resumption was sent, and for any time before', async () => {
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'performance'] });
    const { entered, enter, pass } = newGate();
    for (const name of ['a', 'b']) void enter(name);
    await settled();
    jest.advanceTimersByTime(60_000);
    await settled();
    expect(entered).toEqual(['a']);
    pass('a').sent();
    jest.advanceTimersByTime(1_999);
    await settled();
    expect(entered).toEqual(['a']);
    jest.advanceTimersByTime(1);
    await settled();
    expect(entered).toEqual(['a', 'b']);
  });

  test('leaves no timer, neither sent with two keys nor after it was left', async () => {
    jest.useFakeTimers();
    const { enter, pass } = newGate();
    await enter('a');
    pass('a').sent();
    pass('a').sent();
    expect(jest.getTimerCount()).toBe(1);
    pass('a').leave();
    await enter('b');
    pass('b').leave();
    pass('b').sent();
    expect(jest.getTimerCount()).toBe(0);
  });

  test.each(['while it waits', 'in the moment in which it is called'])(
    'forgets one that leaves %s, and calls the next',
    async (when) => {
      const { entered, enter, pass } = newGate();
      const leaving = new AbortController();
      await enter('a');
      const left = enter('b', { signal: leaving.signal });
      void enter('c');
      await settled();
      if (when === 'while it waits') leaving.abort('left');
      pass('a').leave();
      leaving.abort('left');
      await expect(left).rejects.toBe('left');
      await settled();
      expect(entered).toEqual(['a', 'c']);
    },
  );
});

describe('a gate of many bots', () => {
  const others = Array.from({ length: 1_000 }, (_, n) => `acme/bot-${n}`);

  test('forgets of the bots that were resumed the one that was first', async () => {
    const { gate, entered, enter } = newGate();
    for (const bot of [BOT, ...others]) gate.proven(bot);
    for (const name of ['a', 'b']) void enter(name);
    for (const name of ['c', 'd']) void enter(name, { bot: 'acme/bot-999' });
    await settled();
    expect(entered.sort()).toEqual(['a', 'c', 'd']);
  });

  test('forgets none that may not heal, and none of which a stream is being resumed', async () => {
    const { gate, entered, enter, pass } = newGate();
    gate.forbid('acme/other');
    await enter('a');
    for (const bot of others) gate.proven(bot);
    void enter('b');
    await settled();
    expect([gate.mayHeal('acme/other'), entered]).toEqual([false, ['a']]);
    pass('a').leave();
    await settled();
    expect(entered).toEqual(['a', 'b']);
  });

  test('heals no stream of a bot for which there is no room', async () => {
    const { gate, entered, enter } = newGate();
    for (const bot of others.slice(1)) gate.forbid(bot);
    expect(gate.mayHeal(BOT)).toBe(true);
    await enter('a', { bot: 'acme/bot-0' });
    for (const name of ['b', 'c']) await enter(name);
    gate.proven(BOT);
    expect([gate.mayHeal(BOT), entered]).toEqual([false, ['a', 'b', 'c']]);
  });
});
