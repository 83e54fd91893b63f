import { existsSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, jest } from '@jest/globals';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';

const PROGRAM = '/usr/bin/chromium';
const FLAGS = [
  ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'],
  ...['--disable-component-update', '--disable-sync'],
  // Nothing leaves this machine, whatever a page asks for.
  '--no-proxy-server',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1',
];
/** The browser itself reports an answer of 4xx or 5xx, which of these paths is no fault of the page. */
const CALLED = /\/(auth|generic)\//;

const installed = existsSync(PROGRAM);
if (!installed)
  process.stderr.write('Tests with Chromium are skipped; to run them: apt-get install chromium\n');

/** A `describe` for tests that need the `chromium` program. */
export const describeInChromium = installed ? describe : describe.skip;

/** One tab. */
export interface Tab {
  readonly page: Page;
  /** What went wrong in it so far: console errors and warnings, uncaught errors, violations of its content security policy. */
  readonly complaints: string[];
}

/** A real Chromium without a window. */
export interface Chromium {
  readonly browser: Browser;
  /** Opens `url` in a tab: of a new and empty profile, or of `profile`, which other tabs have too. */
  open(url: string, profile?: BrowserContext): Promise<Tab>;
  close(): Promise<void>;
}

/** Starts one; for `beforeAll`, since it takes a second or more. */
export async function startChromium(): Promise<Chromium> {
  const browser = await chromium.launch({ executablePath: PROGRAM, args: FLAGS, headless: true });
  return {
    browser,
    async open(url, profile) {
      const page = await (profile ?? (await browser.newContext())).newPage();
      const complaints = complaintsOf(page);
      await page.goto(url);
      return { page, complaints };
    },
    close: () => browser.close(),
  };
}

/**
 * One for all tests of a file, which get the time that a browser takes on a busy machine; after each of them its tabs
 * are closed.
 */
export function oneChromium(): Chromium {
  jest.setTimeout(90_000);
  let running: Chromium | undefined;
  const chromium = () => running as Chromium;
  beforeAll(async () => {
    running = await startChromium();
  });
  afterEach(async () => {
    await Promise.all(
      chromium()
        .browser.contexts()
        .map((profile) => profile.close()),
    );
  });
  afterAll(() => running?.close());
  return {
    get browser() {
      return chromium().browser;
    },
    open: (url, profile) => chromium().open(url, profile),
    close: () => chromium().close(),
  };
}

/** Everything that goes wrong in `page` from now on. Chromium writes policy violations to the console. */
function complaintsOf(page: Page): string[] {
  const complaints: string[] = [];
  page.on('console', (message) => {
    if (message.type() !== 'error' && message.type() !== 'warning') return;
    const text = message.text();
    if (text.startsWith('Failed to load resource') && CALLED.test(message.location().url)) return;
    complaints.push(`${message.type()}: ${text} (${message.location().url})`);
  });
  page.on('pageerror', (error) => complaints.push(`uncaught: ${error.stack ?? error}`));
  return complaints;
}

/** A tab, and what the browser has complained about in the pages of one origin since the last time it was asked. */
export interface StrictTab {
  readonly page: Page;
  complaints(): string[];
}

/** Opens a tab that also tells of answers of 4xx and 5xx. What other origins' pages do wrong is none of the relay's business. */
export async function openTab(context: BrowserContext, origin: string): Promise<StrictTab> {
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on('console', (message) => {
    const { url } = message.location();
    if (message.type() !== 'error' && message.type() !== 'warning') return;
    if (url === '' || url.startsWith(origin))
      complaints.push(`${url.slice(origin.length)}: ${message.text()}`);
  });
  page.on('pageerror', (error) => complaints.push(`${page.url()}: ${error}`));
  return { page, complaints: () => complaints.splice(0) };
}
