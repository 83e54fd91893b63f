import { existsSync } from 'node:fs';
import { describe } from '@jest/globals';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';

const PROGRAM = '/usr/bin/chromium';
const FLAGS = [
  ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'],
  ...['--disable-component-update', '--disable-sync'],
  // Nothing leaves this machine, whatever a page asks for.
  '--no-proxy-server',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1',
];

const installed = existsSync(PROGRAM);
if (!installed)
  process.stderr.write('Tests with Chromium are skipped; to run them: apt-get install chromium\n');

/** A `describe` for tests that need the `chromium` program. */
export const describeWithChromium = installed ? describe : describe.skip;

/** A real Chromium without a window, whose profile is new and empty. */
export function startChromium(): Promise<Browser> {
  return chromium.launch({ executablePath: PROGRAM, args: FLAGS, headless: true });
}

/** A tab, and what the browser has complained about in the pages of `origin` since the last time it was asked. */
export interface Tab {
  readonly page: Page;
  complaints(): string[];
}

/** Opens a tab. What other origins' pages do wrong is none of the relay's business. */
export async function openTab(context: BrowserContext, origin: string): Promise<Tab> {
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
