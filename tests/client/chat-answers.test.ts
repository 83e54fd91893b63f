/// <reference lib="dom" />
import { afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { chatTab } from '../harness/browser/chat-tab.ts';
import { describeInChromium } from '../harness/browser/chromium.ts';

const tab = chatTab({ permissions: ['clipboard-read', 'clipboard-write'] });
const { announced, button, calls, enter, focused, twoFrames } = tab;
beforeEach(() => enter('empty'));

const alerts = () => tab.page.getByRole('alert').filter({ hasText: /\S/ }).allTextContents();
/** What the relay says, and what users are told. */
const MESSAGE = 'The bot service cannot be reached.';
const AWAY = 'The assistant cannot be reached right now. Try again in a moment.';
const OTHER = 'Something went wrong on our side. Try again.';
const copied = () => tab.page.evaluate(() => navigator.clipboard.readText());
/** The folded details of an error, as names and values. */
const details = () =>
  tab.page
    .locator('details.details :is(dt, dd)')
    .evaluateAll((all) => all.map((one) => one.textContent?.trim() ?? ''));

describeInChromium('an answer', () => {
  test('is read out once, when it has ended; until then the log is busy', async () => {
    const grow = (text: string, state: 'streaming' | 'done') =>
      tab.chat.evaluate(
        ({ set, answer }, { text, state }) => {
          set({ messages: [answer({ id: 'one', text, state })] });
        },
        { text, state },
      );
    const busy = () => tab.page.getByRole('log').getAttribute('aria-busy');
    await grow('One', 'streaming');
    await grow('One two', 'streaming');
    expect({ busy: await busy(), announced: await announced() }).toEqual({ busy: 'true', announced: [] });
    await grow('One two.', 'done');
    await grow('One two.', 'done');
    expect({ busy: await busy(), announced: await announced() }).toEqual({
      busy: 'false',
      announced: ['Helper said: One two.'],
    });
  });

  test('can be copied, judged, and asked for again', async () => {
    await enter('done');
    await button('Copy answer').click();
    await button('Copied').waitFor();
    expect(await copied()).toMatch(/^## Parcels/);
    const places = () =>
      tab.page
        .locator('.actions button')
        .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().left));
    const before = await places();
    await button('Copy message').click();
    await button('Copied').nth(1).waitFor();
    expect(await copied()).toBe('Where is my parcel?\nI wait for it.');
    expect(await places()).toEqual(before);
    await button('Copy').click();
    await tab.page.waitForFunction(async () => /^track --parcel/.test(await navigator.clipboard.readText()));
    expect(await button('Good answer').getAttribute('aria-pressed')).toBe('true');
    await button('Bad answer').click();
    await button('Regenerate').click();
    const [judged, asked] = await calls();
    expect(judged).toEqual(['feedback', expect.any(String), 'BAD']);
    expect(asked).toEqual(['regenerate', judged?.[1]]);
    expect(await focused()).toBe('Message');
  });

  test('that failed says why, with its request id, and is asked for again once', async () => {
    await enter('failed');
    await tab.page.getByText(`The answer is not complete. ${OTHER}`).waitFor();
    expect(await button('Copy request id').count()).toBe(0);
    await tab.page.getByText('Details').first().click();
    await button('Copy request id').first().click();
    await button('Copied').waitFor();
    await tab.page.waitForFunction(async () => (await navigator.clipboard.readText()) === '0a1b2c3d-request');
    expect(await button(/^Regenerate in (90|[5-8]\d) sec$/).getAttribute('aria-disabled')).toBe('true');
    await button(/^Regenerate in/).click({ force: true });
    await button('Regenerate').evaluate((element: HTMLElement) => {
      element.click();
      element.click();
    });
    expect((await calls()).filter(([name]) => name === 'regenerate')).toHaveLength(1);
  });

  test('that is bad can get a comment, which is sent after the verdict', async () => {
    await enter('comment');
    const field = tab.page.getByRole('textbox', { name: 'What was wrong?' });
    await field.fill('x'.repeat(8_193));
    await tab.page.locator('.comment [type=submit]').click();
    await tab.page.getByText('This is too large. Send less at once.').waitFor();
    await field.fill('Not Hamburg');
    await tab.page.locator('.comment [type=submit]').click();
    expect(await field.count()).toBe(0);
    expect(await calls()).toEqual([
      ['feedback', expect.any(String), 'BAD'],
      ['feedback', expect.any(String), 'BAD', 'Not Hamburg'],
    ]);
    expect(await focused()).toBe('Bad answer');
    expect(await announced()).toEqual(['Thank you for telling us.']);
    await button('Bad answer').click();
    await field.press('Escape');
    expect(await field.count()).toBe(0);
  });

  test('keeps a comment that could not be sent', async () => {
    await enter('comment');
    await tab.chat.evaluate(({ refuse }) => refuse({ code: 'unreachable' }));
    const field = tab.page.getByRole('textbox', { name: 'What was wrong?' });
    await field.fill('Not Hamburg');
    await tab.page.locator('.comment [type=submit]').click();
    expect(await calls()).toContainEqual(['feedback', expect.any(String), 'BAD', 'Not Hamburg']);
    expect(await field.inputValue()).toBe('Not Hamburg');
    expect(await announced()).toEqual([]);
  });

  test('opens to what a tool was called with and has said, and says so in words', async () => {
    await enter('tools');
    const tools = tab.page.locator('.tool');
    expect(await tools.locator('.line').allTextContents()).toEqual([
      'Used find parcel',
      'find parcel: Not allowed',
      'Uses find parcel',
    ]);
    await tools.first().getByText('"place": "Hamburg"').waitFor();
    await tools.first().getByText('"number": "DE-2024-0815"').waitFor();
    // The tool that was not allowed has nothing to open.
    expect(await tools.locator('details').count()).toBe(2);
  });

  test('uses no tool any more when it has ended', async () => {
    await tab.chat.evaluate(({ set, answer }) => {
      const tool = { type: 'dynamic-tool', toolName: 'clock', toolCallId: '1', input: {} } as const;
      const parts = [{ ...tool, state: 'input-available' } as const];
      set({ messages: [answer({ id: 'one', state: 'streaming', parts })] });
      set({ messages: [answer({ id: 'one', state: 'done', parts })] });
    });
    expect(await tab.page.locator('.tool').allTextContents()).toEqual(['Used clock']);
  });

  test('shows no more of a long value than can be read', async () => {
    const shown = await tab.chat.evaluate(({ set, answer }) => {
      const tool = { type: 'dynamic-tool', toolName: 'clock', toolCallId: '1', input: {} } as const;
      const parts = [{ ...tool, state: 'output-available', output: 'x'.repeat(100_000) } as const];
      set({ messages: [answer({ parts })] });
      return document.querySelector('#chat')?.shadowRoot?.querySelector('.tool pre')?.textContent?.length;
    });
    expect(shown).toBe(4_002);
  });

  test('goes on where a value of a tool has too many others in each other', async () => {
    await tab.chat.evaluate(({ set, answer, question }) => {
      const input = JSON.parse(`${'['.repeat(50_000)}${']'.repeat(50_000)}`);
      const call = { type: 'dynamic-tool', toolName: 'clock', toolCallId: '1', input } as const;
      const asked = { ...call, toolCallId: '2', state: 'approval-requested', approval: { id: '2' } } as const;
      const parts = [{ ...call, state: 'output-available', output: 'noon' } as const, asked];
      set({ messages: [answer({ parts }), question('And now?')] });
    });
    await tab.page.locator('.tool', { hasText: 'noon' }).waitFor({ state: 'attached' });
    await tab.page.locator('.consent').waitFor();
    await tab.page.locator('.question', { hasText: 'And now?' }).waitFor();
  });

  test('keeps the focus on a tool when that has ended, and when the answer has', async () => {
    const show = (state: 'streaming' | 'done', hasOutput: boolean) =>
      tab.chat.evaluate(
        ({ set, answer }, [state, hasOutput]) => {
          const tool = { type: 'dynamic-tool', toolName: 'clock', toolCallId: '1', input: 'now' } as const;
          const part = hasOutput
            ? ({ ...tool, state: 'output-available', output: 'noon' } as const)
            : ({ ...tool, state: 'input-available' } as const);
          set({ messages: [answer({ id: 'one', state, parts: [part] })] });
        },
        [state, hasOutput] as const,
      );
    await show('streaming', false);
    await tab.page.locator('.tool summary').focus();
    await show('streaming', true);
    expect(await focused()).toBe('Used clock');
    await show('done', true);
    expect(await focused()).toBe('Used clock');
  });

  test('asks for a tool with what it will do, folded if that is long', async () => {
    await enter('consent-long');
    expect(await announced()).toEqual(['The bot asks to use send email.', 'The bot asks to use send email.']);
    const cards = tab.page.locator('.consent');
    await cards.first().getByText('"to": "ada@example.com"').waitFor();
    expect(await cards.locator('details').count()).toBe(1);
    await cards
      .last()
      .getByText(/Dear Ada/)
      .waitFor();
  });

  test('has its day above it, once for all messages of that day', async () => {
    await tab.chat.evaluate(({ set, question, answer }) => {
      const at = (ms: number) => ({ metadata: { createdAt: ms } });
      const now = Date.now();
      set({
        messages: [
          question('Old', at(1_700_000_000_000)),
          answer({ text: 'Old', ...at(1_700_000_000_001) }),
          question('Of a history', { metadata: {} }),
          question('Hello', at(now)),
          answer({ text: 'Hello', ...at(now) }),
        ],
      });
    });
    expect(await tab.page.locator('.day').allTextContents()).toEqual([
      expect.stringMatching(/^November 1\d, 2023$/),
      'today',
    ]);
  });

  test.each([
    ['Allow once', true],
    ['Always allow', 'always'],
    ['Do not allow', false],
  ])('asks for a tool: %s', async (name, allow) => {
    await enter('consent');
    expect(await announced()).toEqual(['The bot asks to use clock.']);
    await button(name).click();
    expect(await calls()).toEqual([['consent', '2', allow]]);
  });

  test('keeps its end in view, unless the reader has scrolled back', async () => {
    const log = tab.page.getByRole('log');
    const long = async (lines: number) => {
      await tab.chat.evaluate(({ set, answer }, lines) => {
        set({ messages: [answer({ id: 'one', state: 'streaming', text: 'line\n\n'.repeat(lines) })] });
      }, lines);
      await log
        .locator('p')
        .nth(lines - 1)
        .waitFor({ state: 'attached' });
      await twoFrames();
    };
    const left = () => log.evaluate((one) => one.scrollHeight - one.scrollTop - one.clientHeight);
    await long(100);
    await long(120);
    expect(await left()).toBeLessThan(5);
    expect(await button('To the newest message').count()).toBe(0);
    await log.evaluate((one) => one.scrollTo(0, 100));
    await twoFrames();
    await long(160);
    expect(await log.evaluate((one) => one.scrollTop)).toBe(100);
    await button('To the newest message').click();
    await twoFrames();
    expect(await left()).toBeLessThan(5);
    expect(await button('To the newest message').count()).toBe(0);
    await long(200);
    expect(await left()).toBeLessThan(5);
  });
});

describeInChromium('the cursor of an answer that comes', () => {
  afterEach(() => tab.page.emulateMedia({ reducedMotion: null }));

  test.each([
    { reducedMotion: 'no-preference', running: ['blink'] },
    { reducedMotion: 'reduce', running: [] },
  ] as const)('blinks, and stands still for who wants less motion: $reducedMotion', async (one) => {
    await tab.page.emulateMedia({ reducedMotion: one.reducedMotion });
    await enter('streaming');
    const { running, width } = await tab.page.locator('.answer-text > :last-child').evaluate((block) => {
      const cursor = getComputedStyle(block, '::after');
      const animations = block.getAnimations({ subtree: true });
      return {
        running: animations.map((each) => each instanceof CSSAnimation && each.animationName),
        width: Number.parseFloat(cursor.inlineSize),
      };
    });
    expect(running).toEqual(one.running);
    expect(width).toBeGreaterThan(0);
  });
});

describeInChromium('an error', () => {
  const FAILED = { code: 'unreachable', requestId: '0a1b-2c3d' };
  const AWAY_IN_ARABIC = 'تعذّر الوصول إلى المساعد الآن. حاول مرة أخرى بعد قليل.';
  /** Has a call fail whose error is shown in this place. */
  const PLACES: Readonly<Record<string, () => Promise<unknown>>> = {
    note: () =>
      tab.chat.evaluate(({ set, answer }, failed) => set({ error: answer({ failed }).error }), FAILED),
    row: () =>
      tab.chat.evaluate(({ set, answer }, failed) => set({ messages: [answer({ failed })] }), FAILED),
    async header() {
      await tab.page.locator('summary.account').click();
      await button(/Sign out|تسجيل الخروج/).click();
    },
    async form() {
      await tab.chat.evaluate(({ setUser }) => setUser(null));
      for (const input of await tab.page.locator('.sign-in input').all()) await input.fill('x');
      await tab.page.locator('[type=submit][part~=sign-in]').click();
    },
  };

  test.each(Object.entries(PLACES))(
    'is one plain sentence, and folded with it what an operator asks for: %s',
    async (_, fail) => {
      for (const [lang, sentence, names] of [
        ['en', AWAY, ['Request id', 'Error code', 'Status', 'Message']],
        ['ar', AWAY_IN_ARABIC, ['رقم الطلب', 'رمز الخطأ', 'الحالة', 'رسالة']],
      ] as const) {
        await tab.chat.evaluate(({ show }, lang) => show({ lang }), lang);
        await tab.chat.evaluate(({ refuse }, failed) => refuse(failed), FAILED);
        await fail();
        const why = tab.page.locator('.why').filter({ hasText: /\S/ });
        await why.waitFor();
        const told = await why.evaluate((one) => (one.querySelector('[role=alert]') ?? one).textContent);
        expect(told).toBe(sentence);
        const values = ['0a1b-2c3d', 'unreachable', '502', MESSAGE];
        expect(await details()).toEqual(names.flatMap((name, at) => [name, values[at]]));
      }
      expect(await tab.page.locator('details span[lang=en][dir=ltr]').textContent()).toBe(MESSAGE);
    },
  );

  test('of an answer that has begun is read out in the words of its code', async () => {
    await tab.chat.evaluate(({ set, answer }, failed) => {
      set({ messages: [answer({ id: 'one', text: 'x', state: 'streaming' })] });
      set({ messages: [answer({ id: 'one', text: 'x', failed })] });
    }, FAILED);
    expect(await announced()).toEqual([`The answer is not complete. ${AWAY}`]);
  });
});

describeInChromium('an answer that failed', () => {
  test('can be asked for again when the time is over, also if its row is made again', async () => {
    const first = await tab.chat.evaluate(async ({ set, answer }) => {
      const failed = answer({ failed: { retryAfter: 60 } });
      set({ messages: [failed] });
      const now = performance.now.bind(performance);
      performance.now = () => now() + 20_000;
      set({ messages: [] });
      set({ messages: [failed] });
      performance.now = now;
      return document.querySelector('#chat')?.shadowRoot?.querySelector('[part~=regenerate]')?.textContent;
    });
    // Of 60 seconds, 20 have gone by, and what the test took.
    expect(first).toMatch(/^Regenerate in ([1-3]?\d|40) sec$/);
  });

  test('is not shown and read out a second time by a history that failed with it', async () => {
    await tab.chat.evaluate(({ set, answer }) => {
      const failed = answer({ failed: {} });
      if (failed.error) set({ messages: [failed], failedHistory: { error: failed.error, loadAgain() {} } });
    });
    await tab.page.getByRole('button', { name: 'Try again', exact: true }).waitFor();
    expect(await alerts()).toEqual([]);
    expect(await tab.page.locator('.why').filter({ hasText: OTHER }).count()).toBe(1);
  });

  test('is said in the words of an operator who leaves the error out', async () => {
    const said = await tab.chat.evaluate(({ show, set, answer }) => {
      show({ words: { incomplete: 'Please call us.' } });
      set({ messages: [answer({ text: 'Half', failed: {} })] });
      return document.querySelector('#chat')?.shadowRoot?.querySelector('.answer .why')?.textContent;
    });
    expect(said).toBe('Please call us.');
  });

  test.each([
    [false, [{ code: 'body_too_large', status: 413, retryable: false }]],
    [false, [{ code: 'operation_not_enabled', status: 501, retryable: false }]],
    [
      true,
      [
        { code: 'busy', status: 503, retryable: 'new message' },
        { code: 'connection_lost', status: 0 },
      ],
    ],
    [true, [{ code: 'upstream_stream_broken', status: 502, retryable: false, maybeStarted: true }]],
    // After signing in.
    [true, [{ code: 'unauthenticated', status: 401, retryable: false }]],
    [true, [{ code: 'run_over', status: 410, retryable: false }]],
  ])('has a button only where it can help: %j, %j', async (canHelp, all) => {
    for (const failed of all) {
      await tab.chat.evaluate(({ set, answer }, failed) => set({ messages: [answer({ failed })] }), failed);
      await tab.page.locator('.answer .why').filter({ hasText: /\S/ }).waitFor();
      expect(await button('Regenerate').count()).toBe(canHelp ? 1 : 0);
    }
  });

  test.each([
    ['unexpected_response', OTHER],
    ['', MESSAGE],
    ['own', MESSAGE],
  ])('has the words of the bot only if the bot itself has told it: %j', async (code, text) => {
    await tab.chat.evaluate(({ set, answer }, code) => {
      set({ messages: [answer({ failed: { code, status: 200 } })] });
    }, code);
    expect(await tab.page.locator('.answer .why').textContent()).toBe(text);
    expect(await tab.page.locator('.answer .why span[dir=auto]').count()).toBe(text === MESSAGE ? 1 : 0);
  });
});

describeInChromium('what is read out', () => {
  test('is the end of a session that the user has not ended', async () => {
    await tab.chat.evaluate(({ set }) => set({ session: null }));
    await tab.chat.evaluate(({ set }) => set({ isLoading: false }));
    expect(await announced()).toEqual(['You are signed out.']);
  });

  test('is not that nobody was signed in at first', async () => {
    await tab.chat.evaluate(({ show, set }) => {
      show({ session: undefined });
      set({ session: null });
    });
    expect(await announced()).toEqual([]);
  });

  test('is an error without its request id, which stands beside it', async () => {
    await tab.chat.evaluate(({ set, answer }) => {
      set({ error: answer({ failed: { requestId: '0a1b' } }).error });
    });
    expect(await alerts()).toEqual([OTHER]);
    await tab.page.getByText('Details').click();
    await tab.page.getByText('0a1b', { exact: true }).waitFor();
    expect(await tab.page.locator('[aria-live]:not([aria-live=off]) code, [role=alert] code').count()).toBe(
      0,
    );
  });
});

describeInChromium('a file that is not uploaded', () => {
  const attach = (name: string) =>
    tab.page
      .locator('input[type=file]')
      .setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from('text') });

  test('keeps its name where that looks like the place of the error', async () => {
    await attach('a{error}b.txt');
    await tab.chat.evaluate(({ finishUpload }) => finishUpload(undefined));
    await tab.page.locator('.files li[data-state=error]').waitFor();
    expect(await announced()).toEqual([
      'a{error}b.txt is not attached. This is too large. Send less at once.',
    ]);
  });

  test('is shown as such when nothing says why, since its user has left', async () => {
    await attach('a.txt');
    await tab.chat.evaluate(({ finishUpload }) => finishUpload(undefined, false));
    await tab.page.locator('.files li[data-state=error]').waitFor();
    expect(await tab.page.locator('.files li .note').textContent()).toBe('a.txt is not attached. ');
    expect(await announced()).toEqual(['a.txt is not attached. ']);
  });
});

/** From here on, the clock of the page stands, and goes on as a test says. */
describeInChromium('with the clock of the test, an answer', () => {
  beforeAll(async () => {
    await tab.page.clock.install();
    await tab.page.clock.pauseAt(Date.now() + 60_000);
  });

  test('shows that it is waited for, and for how long', async () => {
    await enter('submitted');
    expect(await tab.page.locator('.dots').isVisible()).toBe(true);
    await tab.page.clock.runFor(4_000);
    await tab.page.getByText(/^Waiting for the answer · [34] s$/).waitFor();
  });

  test('shows that it goes on while nothing comes', async () => {
    const dots = tab.page.locator('.dots');
    await enter('streaming');
    await tab.page.clock.runFor(4_900);
    expect(await dots.isVisible()).toBe(false);
    await tab.page.clock.runFor(200);
    expect(await dots.isVisible()).toBe(true);
    await tab.chat.evaluate(({ set, answer }) =>
      set({ messages: [answer({ text: 'More', state: 'done' })] }),
    );
    expect(await dots.isVisible()).toBe(false);
  });

  test('says that it was not copied where there is no clipboard', async () => {
    await enter('done');
    const names = ['Copy answer', 'Copy'];
    await tab.page.evaluate(() =>
      Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true }),
    );
    for (const name of names) {
      await button(name).click();
      await button('Not copied: select the text').waitFor();
      await tab.page.clock.runFor(2_000);
      await button(name).waitFor();
    }
    await tab.page.evaluate(() => delete (navigator as { clipboard?: unknown }).clipboard);
    expect(await announced()).toEqual(names.map(() => 'Not copied: select the text'));
  });
});

describeInChromium('with the clock of the test, the form after too many sign-ins', () => {
  const submit = () => tab.page.locator('.sign-in button');
  async function refused(): Promise<void> {
    await tab.chat.evaluate(({ setUser, refuse }) => {
      setUser(null);
      refuse({ code: 'too_many_attempts', retryAfter: 120 });
    });
    for (const input of await tab.page.locator('.sign-in input').all()) await input.fill('ada');
    await submit().click();
    await tab.page.locator('.sign-in [aria-disabled]').waitFor();
    await tab.page.locator('.sign-in .why').filter({ hasText: /\S/ }).waitFor();
  }

  test('lets another user sign in at once, but not twice', async () => {
    await refused();
    expect(await submit().textContent()).toBe('Try again in 2 min');
    await tab.page.getByLabel('User name').fill('bob');
    expect(await submit().textContent()).toBe('Sign in');
    await tab.chat.evaluate(({ calls }) => {
      calls.length = 0;
      const form = document.querySelector('#chat')?.shadowRoot?.querySelector<HTMLFormElement>('.sign-in');
      form?.requestSubmit();
      form?.querySelector('input')?.dispatchEvent(new Event('input'));
      form?.requestSubmit();
    });
    expect(await calls()).toEqual([['signIn', 'bob', 'ada']]);
  });

  test('waits no longer because the clock was set back, or the computer has slept', async () => {
    await refused();
    const { clock } = tab.page;
    const now = await tab.page.evaluate(() => Date.now());
    await clock.setSystemTime(now - 3_600_000);
    await clock.runFor(1_000);
    expect(await submit().textContent()).toBe('Try again in 2 min');
    // That it counts is not read out.
    expect(await announced()).toEqual(['You are signed out.', 'Try again in 2 min']);
    await clock.setSystemTime(now + 60_000);
    await clock.runFor(1_000);
    expect(await submit().textContent()).toMatch(/^Try again in 5\d sec$/);
  });
});
