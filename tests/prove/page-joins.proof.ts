import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { type JoiningPages, startJoiningPages } from '../harness/browser/chat-front.ts';
import { lastAnswer, longMessage, say, someWords } from '../harness/browser/chat-page.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';

/** Stops all processes of this process's browsers, as a laptop does that sleeps; the returned function wakes them. */
function stopBrowsers(): () => void {
  const pids = descendants(process.pid).filter((pid) => /chrom/i.test(read(pid, 'cmdline')));
  if (pids.length === 0) throw new Error('no browser runs');
  const signal = (name: NodeJS.Signals) => {
    for (const pid of pids) process.kill(pid, name);
  };
  signal('SIGSTOP');
  return () => signal('SIGCONT');
}

function descendants(parent: number): number[] {
  const all = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => ({ pid: Number(name), parent: parentOf(Number(name)) }));
  const found: number[] = [];
  for (const ahead = [parent]; ahead.length > 0; ) {
    const next = ahead.pop();
    const children = all.filter((one) => one.parent === next).map(({ pid }) => pid);
    found.push(...children);
    ahead.push(...children);
  }
  return found;
}

/** The program's name may contain spaces and brackets, so the fields are those behind the last one. */
function parentOf(pid: number): number {
  const stat = read(pid, 'stat');
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
}

/** Empty if the process has ended. */
function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}

let pages: JoiningPages;
beforeAll(async () => {
  pages = await startJoiningPages();
});
const chromium = oneChromium();
afterAll(() => pages.close());
jest.setTimeout(120_000);

/** All times of joining are those as shipped. */
describeInChromium('an answer is whole and was paid once', () => {
  test.each([
    ['longer than the sleep, whose connection has lasted', 30, false],
    ['that ended during the sleep, which has cost the connection', 8, true],
  ])('after the browser has slept for 20 s: an answer %s', async (_, seconds, isCut) => {
    const { page, cut, posts, texts, complaints } = await pages.open(chromium, ['message']);
    const words = longMessage(seconds);
    await say(page, words);
    await someWords(page);
    const wake = stopBrowsers();
    if (isCut) cut();
    await sleep(20_000);
    wake();
    await lastAnswer(page, 'done');
    expect(await texts()).toEqual([words, `You said: ${words}`]);
    expect(posts()).toBe(1);
    expect(complaints).toEqual([]);
  });

  test('after five seconds without a network, and a reload', async () => {
    const { page, profile, cut, posts, texts } = await pages.open(chromium, ['message', 'chat']);
    const words = longMessage(20);
    await say(page, words);
    await someWords(page);
    await profile.setOffline(true);
    cut();
    await lastAnswer(page, 'reconnecting');
    await sleep(5_000);
    await profile.setOffline(false);
    await lastAnswer(page, 'streaming');
    await page.reload();
    await lastAnswer(page, 'done');
    expect(await texts()).toEqual([words, `You said: ${words}`]);
    expect(posts()).toBe(1);
  });
});
