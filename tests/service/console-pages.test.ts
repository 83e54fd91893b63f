/// <reference lib="dom" />
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { AxeResults, RunOptions } from 'axe-core';
import type { BrowserContextOptions, Page } from 'playwright-core';
import { secret } from '../../src/secret.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { answering, startTestConsole, type TestConsole } from '../harness/service/console.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const RULES = {
  type: 'tag',
  values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
} satisfies RunOptions['runOnly'];
/** The rules that look at colours: the others find the same in the dark. */
const COLORS = {
  type: 'rule',
  values: ['color-contrast', 'link-in-text-block'],
} satisfies RunOptions['runOnly'];
const LONG = 'a-very-long-name-without-any-place-to-break-it-0123456789';
const TEXT = '# Parcels\n\nA parcel takes two days.\n\n# Returns\n\nThirty days.\n';

const chromium = oneChromium();
let console: TestConsole;
/** Lets a file wait that is being indexed. */
let held: PromiseWithResolvers<void>;
beforeEach(async () => {
  held = Promise.withResolvers();
  console = await startTestConsole({
    async testConnection(role, { model }) {
      if (role === 'completion') return { ok: true, model, ms: 812, tokens: 9 };
      const todo = 'Enter another key, or look at the provider whether this one is active.';
      return { ok: false, code: 'X', problem: 'The provider refused the key.', todo };
    },
    embeddingModel: () => ({
      model: 'embedder',
      embed: (texts) => held.promise.then(() => texts.map(() => Float32Array.of(0, 1))),
    }),
    brainOf: () => answering((text) => [`You said:\n${text}`, 'The answer was longer than allowed.']),
  });
});
afterEach(() => console.close());

/** Fills a project so that every page shows something. */
function fill({ settings }: TestConsole): void {
  settings.createProject('Shop');
  settings.addNamespace('demo', LONG);
  settings.setDailyCap('demo', 2000);
  for (const name of ['Relay in production', LONG]) settings.createKey('demo', name);
  settings.setKeyEnabled(`${settings.keys('demo')[1]?.id}`, false);
  settings.saveModel('demo', 'completion', {
    ...{ kind: 'azure', model: 'gpt-5', endpoint: 'https://shop.openai.azure.com', deployment: 'main' },
    ...{ windowCharacters: 100_000, key: secret('a-key-of-a-provider-wxyz') },
  });
  const bot = {
    title: 'Shop assistant',
    instructions: 'Be brief.\nBe kind.',
    suggestions: ['Where is my parcel?'],
  };
  for (const name of ['assistant', LONG])
    settings.saveBot('demo', { ...bot, namespace: 'demo', name, tools: ['clock'], usesKnowledge: true });
}

const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
const files = (...names: string[]) =>
  names.map((name) => ({ name, mimeType: 'text/markdown', buffer: Buffer.from(TEXT) }));

/** Opens a tab, and signs in by the link. */
async function signIn(profile: BrowserContextOptions = {}) {
  const tab = await chromium.open(`${console.signInLink}`, await chromium.browser.newContext(profile));
  await press(tab.page, 'Sign in');
  await tab.page.getByRole('heading', { name: 'Projects' }).waitFor();
  return { ...tab, goTo: (path: string) => tab.page.goto(`${console.url.origin}${path}`) };
}

const PROGRESS = '/projects/demo/knowledge/progress';

/** All that the console can show, in an order in which it can be reached. */
async function* everyPage({ page, goTo }: Awaited<ReturnType<typeof signIn>>): AsyncGenerator<string> {
  const { settings } = console;
  const at = async (path: string) => `${(await goTo(path))?.status()} ${path}`;
  yield await at('/');
  yield await at('/nothing');
  yield await at('/projects/demo');
  await page.getByLabel('Messages a day').fill('many');
  await press(page, 'Set the cap');
  yield 'a project with a fault';
  yield await at('/projects/demo/delete');
  yield await at('/projects/demo/keys');
  yield await at(`/projects/demo/keys/${settings.keys('demo')[0]?.id}?done=created`);
  yield await at('/projects/demo/models');
  await page.getByLabel('Endpoint').first().fill('nowhere');
  await page.getByLabel('Window').fill('');
  await press(page, 'Save of the completion model');
  yield 'models with a fault';
  await goTo('/projects/demo/models');
  await page.getByRole('button', { name: 'Test connection' }).first().click();
  yield 'a good connection';
  await page.getByLabel('Model', { exact: true }).last().fill('embedder');
  await page.getByLabel('Key').last().fill('another-key-of-a-provider');
  await page.getByRole('button', { name: 'Test connection' }).last().click();
  yield 'a bad connection';
  yield await at('/projects/demo/bots');
  yield await at('/projects/demo/bots/new');
  await press(page, 'Create bot');
  yield 'a new bot with a fault';
  yield await at('/projects/demo/bots/demo/assistant');
  await page.getByLabel('Question').fill('Where is my parcel?');
  await press(page, 'Ask');
  yield 'a bot that was tried';
  yield await at('/projects/demo/knowledge');
  await page.getByLabel('Files').setInputFiles(files('guide.md', 'returns.md'));
  await press(page, 'Upload and index');
  // It is loaded again every two seconds, which would disturb what looks at it.
  await page.route(`**${PROGRESS}`, async (route) => {
    const response = await route.fetch();
    const body = (await response.text()).replace(/<meta http-equiv="refresh"[^>]*>/, '');
    await route.fulfill({ response, body });
  });
  await goTo(PROGRESS);
  await page.getByText('0 of').waitFor();
  yield 'indexing';
  yield await at('/projects/demo/knowledge');
  held.resolve();
  await page.unroute(`**${PROGRESS}`);
  await goTo(PROGRESS);
  await page.getByRole('heading', { name: 'Knowledge' }).waitFor();
  await page.getByLabel('Files').setInputFiles({ name: 'a.exe', mimeType: 'x/y', buffer: Buffer.from('MZ') });
  await press(page, 'Upload and index');
  yield 'knowledge with a fault';
  await press(page, 'Sign out');
  yield 'signed out';
}

/** Faults by axe-core's rules, in light and in dark. */
async function axeFaults(page: Page): Promise<string[]> {
  const faults: string[] = [];
  await page.evaluate(AXE);
  for (const [colorScheme, rules] of [
    ['light', RULES],
    ['dark', COLORS],
  ] as const) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await page.evaluate((runOnly) => {
      const { axe } = globalThis as typeof globalThis & {
        axe: { run(root: Document, options: RunOptions): Promise<AxeResults> };
      };
      // The page of an indexing is loaded again and again, which it says; it has nothing to fill in.
      return axe.run(document, { runOnly, rules: { 'meta-refresh': { enabled: false } } });
    }, rules);
    for (const { id, nodes } of violations)
      faults.push(`${colorScheme} ${id}: ${nodes.map((one) => `${one.html} ${one.failureSummary}`).join()}`);
  }
  return faults;
}

/** What is wrong with a page that is as narrow as the narrowest phone. */
async function narrowFaults(page: Page): Promise<string[]> {
  await page.setViewportSize({ width: 320, height: 568 });
  const faults = await page.evaluate(() => {
    const root = document.documentElement;
    const wide = root.scrollWidth > innerWidth ? [`it is ${root.scrollWidth} px wide`] : [];
    const small = [...document.querySelectorAll('button, .button, input, select, textarea, nav a')]
      .map((one) => ({ one, box: (one.closest('.check') ?? one).getBoundingClientRect() }))
      .filter(({ box }) => box.height < 32 || box.width < 32 || box.left < 4 || box.right > innerWidth - 4);
    return [...wide, ...small.map(({ one }) => `small or at the edge: ${one.outerHTML}`)];
  });
  await page.setViewportSize({ width: 1000, height: 700 });
  return faults;
}

describeInChromium('the console in a browser', () => {
  test('no page has a fault, in light, in dark and at 320 px', async () => {
    fill(console);
    const tab = await signIn({ viewport: { width: 1000, height: 700 } });
    const found: string[] = [];
    let count = 0;
    for await (const name of everyPage(tab)) {
      const faults = [...(await axeFaults(tab.page)), ...(await narrowFaults(tab.page))];
      found.push(...faults.map((fault) => `${name}: ${fault}`));
      count += 1;
    }
    expect(found).toEqual([]);
    expect(count).toBe(21);
    // The browser reports answers of 4xx; nothing else, such as what the policy forbids.
    expect(tab.complaints.filter((line) => !/status of (404|422)/.test(line))).toEqual([]);
  });

  test('everything can be done without scripts', async () => {
    const { page } = await signIn({ javaScriptEnabled: false });
    const link = (name: string) => page.getByRole('link', { name, exact: true }).click();
    await page.getByLabel('Name').fill('Shop');
    await press(page, 'Create project');
    await page.getByLabel('New namespace').fill('shop');
    await press(page, 'Add namespace');
    await link('App settings');
    await page.getByLabel('Name').fill('relay');
    await press(page, 'Create key');
    const key = await page.getByLabel('API key').inputValue();
    expect(console.settings.projectOfKey(key)).toBe(console.settings.projects()[0]?.id);
    await link('Back to the keys');
    await press(page, 'Disable relay');
    await page.getByText('disabled', { exact: true }).waitFor();
    expect(console.settings.projectOfKey(key)).toBeUndefined();

    await link('AI settings');
    const completion = page.locator('section', { hasText: 'Completion model' });
    await completion.getByLabel('Provider').selectOption('OpenAI');
    await completion.getByLabel('Key').fill('a-key-of-a-provider-wxyz');
    await completion.getByLabel('Model', { exact: true }).fill('gpt-5');
    await completion.getByRole('button', { name: 'Test connection' }).click();
    await page.getByText('gpt-5 answered in 812 ms.').waitFor();

    await link('Bots');
    await link('New bot');
    await page.getByLabel('Name', { exact: true }).fill('assistant');
    await page.getByLabel('Temperature').fill('hot');
    await press(page, 'Create bot');
    await page.getByRole('alert').getByRole('link').click();
    expect(page.url()).toMatch(/#bot-temperature$/);
    expect(await page.getByLabel('Name', { exact: true }).inputValue()).toBe('assistant');
    await page.getByLabel('Temperature').fill('0.2');
    await press(page, 'Create bot');
    await page.getByLabel('Question').fill('Hello');
    await press(page, 'Ask');
    await page.locator('.said', { hasText: 'Hello' }).waitFor();

    await link('Knowledge');
    await page.getByLabel('Files').setInputFiles(files('guide.md'));
    await press(page, 'Upload and index');
    await page.getByText('0 of').waitFor();
    held.resolve();
    // The page loads itself again until all is done.
    await page.getByText('The indexing is over.').waitFor();
    await link('Delete guide.md');
    await press(page, 'Delete the file');
    await page.getByText('There is no file yet.').waitFor();
    await press(page, 'Sign out');
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  });
});
