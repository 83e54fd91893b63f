import { existsSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, jest } from '@jest/globals';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';

/** The first is Chromium without windows, which Playwright uses by default: a tab takes less than half of the CPU time. */
const PROGRAMS = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'];
const FLAGS = [
  ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'],
  ...['--disable-component-update', '--disable-sync'],
  // No request leaves this machine.
  '--no-proxy-server',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1',
];
/** The browser reports every answer of 4xx or 5xx. At these paths they are no fault of the page. */
const CALLED = /\/(auth|generic)\//;

const program = PROGRAMS.find((path) => existsSync(path));
const installed = program !== undefined;
if (!installed)
  process.stderr.write(
    'Tests with Chromium are skipped; to run them: apt-get install chromium-headless-shell\n',
  );

/** A `describe` for tests that need the `chromium` program. */
export const describeInChromium = installed ? describe : describe.skip;

/** One tab. */
export interface Tab {
  readonly page: Page;
  /** Console errors and warnings so far, uncaught errors, and violations of the content security policy. */
  readonly complaints: string[];
}

/** A real Chromium without a window. */
export interface Chromium {
  readonly browser: Browser;
  /** Opens `url` in a new tab, of a new profile or of `profile`. */
  open(url: string, profile?: BrowserContext): Promise<Tab>;
  close(): Promise<void>;
}

/** Starts Chromium; for `beforeAll`, since it takes a second or more. */
export async function startChromium(): Promise<Chromium> {
  const browser = await chromium.launch({ executablePath: program as string, args: FLAGS, headless: true });
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
 * Starts one Chromium for all tests of a file, and closes its tabs after each test, unless `keepsTabs` is set. Sets a
 * longer time limit, since a browser is slow on a busy machine.
 */
export function oneChromium({ keepsTabs = false } = {}): Chromium {
  jest.setTimeout(90_000);
  let running: Chromium | undefined;
  const chromium = () => running as Chromium;
  beforeAll(async () => {
    running = await startChromium();
  });
  afterEach(async () => {
    if (keepsTabs) return;
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

/** Collects the errors of `page` from now on. Chromium writes policy violations to the console. */
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

/** A tab; `complaints` returns the errors in pages of one origin since its last call. */
export interface StrictTab {
  readonly page: Page;
  complaints(): string[];
}

/** Opens a tab that also reports answers of 4xx and 5xx. Errors of other origins do not count. */
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
