/// <reference lib="dom" />
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { AxeResults, RunOptions } from 'axe-core';
import type { Page } from 'playwright-core';
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
const DESK = { width: 1000, height: 700 };
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
  settings.addNamespace('demo', LONG);
  settings.setDailyCap('demo', 2000);
  settings.createKey('demo', LONG);
  settings.saveModel('demo', 'completion', {
    ...{ kind: 'azure', model: 'gpt-5', endpoint: 'https://shop.openai.azure.com', deployment: 'main' },
    ...{ windowCharacters: 100_000, key: secret('a-key-of-a-provider-wxyz') },
  });
  const bot = { title: 'Shop assistant', instructions: 'Be brief.\nBe kind.', suggestions: ['Where is it?'] };
  const own = { namespace: 'demo', name: LONG, tools: ['clock' as const], usesKnowledge: true };
  settings.saveBot('demo', { ...bot, ...own });
}

const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
const fileOf = (name: string, text: string) => ({
  name,
  mimeType: 'text/markdown',
  buffer: Buffer.from(text),
});

/** Opens a tab, and signs in by the link. */
async function signIn() {
  const tab = await chromium.open(`${console.signInLink}`);
  await tab.page.setViewportSize(DESK);
  await press(tab.page, 'Sign in');
  await tab.page.getByRole('heading', { name: 'Projects' }).waitFor();
  return { ...tab, goTo: (path: string) => tab.page.goto(`${console.url.origin}${path}`) };
}

const PROGRESS = '/projects/demo/knowledge/progress';

/**
 * Does all that can be done, and shows all that the console can show. No page has a script, nor may run one: its policy
 * forbids it, and the browser complains of what it forbids.
 */
async function* everyPage({ page, goTo }: Awaited<ReturnType<typeof signIn>>): AsyncGenerator<string> {
  const { settings } = console;
  const at = async (path: string) => `${(await goTo(path))?.status()} ${path}`;
  const link = async (name: string, path: string) => {
    await page.getByRole('link', { name, exact: true }).click();
    await page.waitForURL(`**/projects/demo/${path}`);
  };
  const field = (name: string) => page.getByLabel(name, { exact: true });
  yield await at('/nothing');
  await goTo('/');
  await field('Name').fill('Shop');
  await press(page, 'Create project');
  await field('New namespace').fill('shop');
  await press(page, 'Add namespace');
  expect(settings.namespaces(`${settings.projects()[0]?.id}`)).toEqual(['shop']);
  yield await at('/');
  yield await at('/projects/demo');
  await page.getByLabel('Messages a day').fill('many');
  await press(page, 'Set the cap');
  yield 'a project with a fault';
  yield await at('/projects/demo/delete');
  await goTo('/projects/demo');
  await link('App settings', 'keys');
  await field('Name').fill('relay');
  await press(page, 'Create key');
  const key = await field('API key').inputValue();
  expect(settings.projectOfKey(key)).toBe('demo');
  yield 'a created key';
  await link('Back to the keys', 'keys');
  await press(page, 'Disable relay');
  await page.getByText('disabled', { exact: true }).waitFor();
  expect(settings.projectOfKey(key)).toBeUndefined();
  yield 'the keys';
  await link('AI settings', 'models');
  yield 'the models';
  await page.getByLabel('Endpoint').first().fill('nowhere');
  await page.getByLabel('Window').fill('');
  await press(page, 'Save of the completion model');
  yield 'models with a fault';
  await goTo('/projects/demo/models');
  await page.getByRole('button', { name: 'Test connection' }).first().click();
  await page.getByText('gpt-5 answered in 812 ms.').waitFor();
  yield 'a good connection';
  await field('Model').last().fill('embedder');
  await page.getByLabel('Key').last().fill('another-key-of-a-provider');
  await page.getByRole('button', { name: 'Test connection' }).last().click();
  yield 'a bad connection';
  await link('Bots', 'bots');
  yield 'the bots';
  await link('New bot', 'bots/new');
  yield 'a new bot';
  await field('Name').fill('assistant');
  await field('Temperature').fill('hot');
  await press(page, 'Create bot');
  await page.getByRole('alert').getByRole('link').click();
  expect(page.url()).toMatch(/#bot-temperature$/);
  expect(await field('Name').inputValue()).toBe('assistant');
  yield 'a new bot with a fault';
  await field('Temperature').fill('0.2');
  await press(page, 'Create bot');
  await field('Question').fill('Where is my parcel?');
  await press(page, 'Ask');
  await page.locator('.said', { hasText: 'Where is my parcel?' }).waitFor();
  yield 'a bot that was tried';
  await link('Knowledge', 'knowledge');
  yield 'no knowledge';
  // A browser sends a nameless file then.
  await press(page, 'Upload and index');
  await page.getByRole('alert').getByText('Choose a file.').waitFor();
  await page.getByLabel('Files').setInputFiles(['guide.md', 'returns.md'].map((name) => fileOf(name, TEXT)));
  // It is loaded again every two seconds, which would disturb what looks at it.
  await page.route(`**${PROGRESS}`, async (route) => {
    const response = await route.fetch();
    const body = (await response.text()).replace(/<meta http-equiv="refresh"[^>]*>/, '');
    await route.fulfill({ response, body });
  });
  await press(page, 'Upload and index');
  await goTo(PROGRESS);
  await page.getByText('0 of').waitFor();
  yield 'indexing';
  yield await at('/projects/demo/knowledge');
  held.resolve();
  await page.unroute(`**${PROGRESS}`);
  await goTo(PROGRESS);
  await page.getByText('The indexing is over.').waitFor();
  await link('Delete guide.md', 'knowledge/*/delete');
  await press(page, 'Delete the file');
  await page.getByText('guide.md', { exact: true }).waitFor({ state: 'detached' });
  await page.getByLabel('Files').setInputFiles(fileOf('a.exe', 'MZ'));
  await press(page, 'Upload and index');
  yield 'knowledge with a fault';
  await press(page, 'Sign out');
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  yield 'signed out';
}

/** Faults by axe-core's rules, in light and in dark. */
async function axeFaults(page: Page): Promise<string[]> {
  const faults: string[] = [];
  // A click ends when the next page has begun, which may not have an element yet.
  await page.waitForLoadState();
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
  await page.setViewportSize(DESK);
  return faults;
}

describeInChromium('the console in a browser', () => {
  test('does everything without scripts, and no page has a fault, in light, in dark and at 320 px', async () => {
    fill(console);
    const tab = await signIn();
    const found: string[] = [];
    let count = 0;
    for await (const name of everyPage(tab)) {
      const faults = [...(await axeFaults(tab.page)), ...(await narrowFaults(tab.page))];
      found.push(...faults.map((fault) => `${name}: ${fault}`));
      count += 1;
    }
    expect(found).toEqual([]);
    expect(count).toBe(20);
    // The browser reports answers of 4xx; nothing else, such as what the policy forbids.
    expect(tab.complaints.filter((line) => !/status of (404|422)/.test(line))).toEqual([]);
  });
});
