/// <reference lib="dom" />
import { afterEach, expect, test } from '@jest/globals';
import { lastAnswer, longMessage, openChat, say, signIn, someWords } from '../support/chat-page.ts';
import { describeInChromium, oneChromium } from '../support/chromium.ts';
import { startProcess, stopProcesses } from '../support/process.ts';

const chromium = oneChromium();
afterEach(() => stopProcesses());

const HELLO = 'Hello, how are you today? It is a fine day here, with a little wind from the sea.';

/** What a test has the page itself note down: each text that the answer has shown, and when. */
interface Seen {
  seen: { text: string; at: number }[];
}

describeInChromium('the chat page in Chromium', () => {
  test('shows a newcomer an answer that appears word by word, and says it once to who listens', async () => {
    const { page, complaints } = await openChat(chromium);
    expect(await page.getByLabel('User name').inputValue()).toBe('demo');
    await signIn(page);
    expect(await page.locator('#user').textContent()).toBe('demo');
    await page.evaluate(() => {
      const seen: Seen['seen'] = [];
      let spoken = 0;
      Object.assign(globalThis, { seen, spoken: () => spoken });
      const look = { subtree: true, childList: true, characterData: true };
      new MutationObserver(() => {
        const text = document.querySelector('.answer .text')?.textContent ?? '';
        if (seen.at(-1)?.text !== text) seen.push({ text, at: performance.now() });
      }).observe(document.querySelector('#messages') as Element, look);
      new MutationObserver((changes) => {
        spoken += changes.filter(({ addedNodes }) => addedNodes.length > 0).length;
      }).observe(document.querySelector('#live') as Element, look);
    });
    await say(page, HELLO);
    await lastAnswer(page, 'done');
    const [seen, spoken] = await page.evaluate(() => {
      const all = globalThis as unknown as Seen & { spoken(): number };
      return [all.seen, all.spoken()] as const;
    });
    const words = `You said: ${HELLO}`.split(' ');
    const steps = seen.map(({ text }) => text.split(' ').filter(Boolean).length);
    expect(seen.at(-1)?.text).toBe(words.join(' '));
    // Each text goes on where the one before stood; a busy machine may draw two words at once.
    for (const { text } of seen) expect(words.join(' ').startsWith(text)).toBe(true);
    expect(steps).toEqual([...steps].sort((a, b) => a - b));
    expect(new Set(steps).size).toBeGreaterThan(4);
    const first = seen.find(({ text }) => text !== '')?.at ?? 0;
    expect((seen.at(-1)?.at ?? 0) - first).toBeGreaterThan(180);
    expect(spoken).toBe(1);
    expect(await page.locator('#live').textContent()).toContain(`demo/echo: ${words.join(' ')}`);
    expect(complaints).toEqual([]);
  });

  test('stops the run at the bot service, and gives the keyboard back', async () => {
    const { page, relay, complaints } = await openChat(chromium);
    await signIn(page);
    await say(page, longMessage(30));
    await someWords(page);
    await page.getByRole('button', { name: 'Stop' }).click();
    await lastAnswer(page, 'stopped');
    // The relay aborts the request upstream with it.
    await relay.waitFor(/"status":200,"outcome":"client_closed"/);
    expect(await page.locator('.answer .note').textContent()).toBe('You stopped this answer.');
    expect(await page.getByRole('button', { name: 'Stop' }).count()).toBe(0);
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('text');
    expect(complaints).toEqual([]);
  });

  test('shows that the sixth of six quick messages waits, and for how long', async () => {
    const { page, complaints } = await openChat(chromium, {
      RATE_WINDOW_MS: '3000',
      RATE_MAX_WAIT_MS: '20000',
    });
    await signIn(page);
    await page.evaluate(() => {
      const notes: string[] = [];
      const order: number[] = [];
      Object.assign(globalThis, { notes, order });
      const form = document.querySelector('#composer') as HTMLFormElement;
      const text = document.querySelector('#text') as HTMLTextAreaElement;
      new MutationObserver(() => {
        const answers = Array.from(document.querySelectorAll<HTMLElement>('.answer'));
        const note = answers[5]?.querySelector('.note')?.textContent;
        if (note !== undefined && note !== null && note !== notes.at(-1)) notes.push(note);
        answers.forEach((answer, index) => {
          if (answer.dataset.state === 'streaming' && !order.includes(index)) order.push(index);
        });
      }).observe(document.querySelector('#messages') as Element, {
        subtree: true,
        childList: true,
        attributes: true,
        characterData: true,
      });
      for (let count = 0; count < 6; count++) {
        text.value = `Message ${count} of six that all come at once`;
        form.requestSubmit();
      }
    });
    await page.waitForFunction(() => document.querySelectorAll('.answer[data-state=done]').length === 6);
    const [notes, order] = await page.evaluate(() => {
      const all = globalThis as unknown as { notes: string[]; order: number[] };
      return [all.notes, all.order] as const;
    });
    const seconds = notes
      .flatMap((note) => /^Waiting for the answer · (\d) s$/.exec(note)?.[1] ?? [])
      .map(Number);
    expect(seconds).toEqual([...seconds].sort());
    expect(seconds[0]).toBe(0);
    expect(seconds.at(-1)).toBeGreaterThan(1);
    // Nothing is counted any more once the answer has begun.
    expect(notes.slice(-2)).toEqual(['Answering…', '']);
    expect(order.at(-1)).toBe(5);
    expect(complaints).toEqual([]);
  });

  test('counts down to the moment when another try is worth it, and copies the request id', async () => {
    const { page, relay, profile, complaints } = await openChat(chromium, {
      RATE_LIMIT: '1',
      RATE_WINDOW_MS: '4000',
      RATE_MAX_WAIT_MS: '0',
    });
    await profile.grantPermissions(['clipboard-read', 'clipboard-write']);
    await signIn(page);
    await say(page, 'One');
    await say(page, 'Two');
    await lastAnswer(page, 'failed');
    const again = page.locator('.answer:nth-of-type(4) .again');
    const labels = await page.evaluate(
      () =>
        new Promise<string[]>((resolve) => {
          const button = document.querySelector('.answer:nth-of-type(4) .again') as HTMLElement;
          const seen = [button.textContent];
          new MutationObserver(() => {
            seen.push(button.textContent);
            if (button.textContent === 'Send again') resolve(seen);
          }).observe(button, { childList: true });
        }),
    );
    const seconds = labels.slice(0, -1).map((label) => Number(/^Send again in (\d) s$/.exec(label)?.[1]));
    expect(seconds).toEqual([...seconds].sort((a, b) => b - a));
    expect(seconds.at(-1)).toBe(1);
    expect(seconds.length).toBeGreaterThan(2);
    await page.getByRole('button', { name: 'Copy' }).click();
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    const id = await page.evaluate(() => navigator.clipboard.readText());
    await relay.waitFor(new RegExp(`"requestId":"${id}".*"outcome":"rate_limited"`));
    await again.click();
    await page.locator('.answer:nth-of-type(6)[data-state=done]', { hasText: 'You said: Two' }).waitFor();
    expect(complaints).toEqual([]);
  });

  test('says when the relay is gone, and goes on when it is back', async () => {
    const { page, relay, url, complaints } = await openChat(chromium);
    await signIn(page);
    await say(page, longMessage(30));
    await someWords(page);
    relay.signal('SIGKILL');
    await lastAnswer(page, 'failed');
    const why = page.locator('.answer:last-child .why');
    expect(await why.textContent()).toMatch(/^The answer is not complete\. The connection broke off\.$/);
    const id = (await page.locator('code').textContent()) ?? '';
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    await relay.exited;
    await say(page, 'Are you there?');
    await page.locator('.answer:last-child .why', { hasText: 'out of reach' }).waitFor();

    await startProcess({ environment: { PORT: new URL(url).port } }).listening();
    await page.locator('.answer:last-child .again').click();
    // Its sessions were in the memory of the one that is gone.
    await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
    await signIn(page);
    expect(await page.locator('.answer').count()).toBe(3);
    await page.locator('.answer:last-child .again').click();
    await page
      .locator('.answer:last-child[data-state=done]', { hasText: 'You said: Are you there?' })
      .waitFor();
    expect(complaints.filter((one) => !one.includes('net::ERR_'))).toEqual([]);
  });

  test('is signed out with the other tabs at once, and shows it on streams; signing in brings all back', async () => {
    const { page, url, profile, complaints } = await openChat(chromium);
    await signIn(page);
    const other = await chromium.open(url, profile);
    await other.page.locator('body[data-session=in]').waitFor();
    // This one has no stream by which it could learn of it.
    const third = await chromium.open(url, profile);
    await third.page.locator('body[data-session=in]').waitFor();
    await say(other.page, longMessage(30));
    await someWords(other.page);
    await other.page.locator('#text').fill('A draft');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await other.page.getByRole('heading', { name: 'You are signed out' }).waitFor();
    await third.page.getByRole('heading', { name: 'You are signed out' }).waitFor();
    await lastAnswer(other.page, 'failed');
    expect(await other.page.locator('.answer .why').textContent()).toContain('Signed out.');
    expect(await other.page.locator('#composer-note').textContent()).toContain('You are signed out.');
    // Nobody is taken away from what they write.
    expect(await other.page.evaluate(() => document.activeElement?.id)).toBe('text');
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('username');
    await signIn(page);
    await other.page.locator('body[data-session=in]').waitFor();
    expect(await other.page.locator('#text').inputValue()).toBe('A draft');
    await other.page.locator('#text').press('Enter');
    await other.page.locator('.answer:last-child[data-state=done]', { hasText: 'A draft' }).waitFor();
    expect([...complaints, ...other.complaints, ...third.complaints]).toEqual([]);
  });

  test('notices by itself that the session has run out', async () => {
    const { page, url, profile } = await openChat(chromium);
    await page.clock.install();
    await signIn(page);
    const [cookie] = await profile.cookies();
    const headers = { Cookie: `${cookie?.name}=${cookie?.value}` };
    expect((await fetch(`${url}auth/logout-all`, { method: 'POST', headers })).status).toBe(204);
    expect(await page.locator('body').getAttribute('data-session')).toBe('in');
    await page.clock.fastForward('30:02');
    await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
  });

  test('is used by the keyboard alone', async () => {
    const { page, complaints } = await openChat(chromium);
    const press = async (...keys: string[]) => {
      for (const key of keys) await page.keyboard.press(key);
    };
    const focused = () => page.evaluate(() => document.activeElement?.id);
    await press('Tab');
    expect(await focused()).toBe('username');
    await press('Tab', 'Enter');
    await page.locator('body[data-session=in]').waitFor();
    expect(await focused()).toBe('text');
    await page.keyboard.type('one');
    await press('Shift+Enter');
    await page.keyboard.type(longMessage(20));
    await press('Enter');
    await someWords(page);
    expect(await page.locator('.question .text').textContent()).toMatch(/^one\nword word/);
    await press('Tab');
    expect(await focused()).toBe('stop');
    await press('Space');
    await lastAnswer(page, 'stopped');
    expect(await focused()).toBe('text');
    await press('Shift+Tab');
    expect(await focused()).toBe('sign-out');
    await press('Enter');
    await page.getByRole('heading', { name: 'You are signed out' }).waitFor();
    expect(await focused()).toBe('username');
    expect(complaints).toEqual([]);
  });
});
