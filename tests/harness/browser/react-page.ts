import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import type { Page } from 'playwright-core';
import { hasReleasePackages, releasePath } from '../clients/release-packages.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../faults/fake-load-balancer.ts';
import { startRelay, type TestRelay, USER } from '../relay/relay.ts';
import { startBotRuns } from '../service/bot-runs.ts';
import type { Chromium } from './chromium.ts';

export type ReactVersion = '18' | '19';
/** React 18 stands beside what only a release needs. */
export const REACT_VERSIONS: readonly ReactVersion[] = hasReleasePackages ? ['18', '19'] : ['19'];

const pathOf = (file: string) => fileURLToPath(new URL(`../../../${file}`, import.meta.url));

/** The client of this checkout. */
const CLIENT = {
  'bot-relay-client': pathOf('src/client/index.ts'),
  'bot-relay-client/ai-sdk': pathOf('src/client/ai-sdk/bot-chat-transport.ts'),
  'bot-relay-client/react': pathOf('src/client/react.ts'),
};

export interface BundleOptions {
  readonly react: ReactVersion;
  readonly platform?: 'browser' | 'node';
}

/** Bundles `entry` (a file of the project, or a text) with this version of React and the client of this checkout. */
export async function bundle(
  entry: string | { readonly text: string },
  { react, platform = 'browser' }: BundleOptions,
): Promise<string> {
  const old = { react: 'react-18', 'react-dom': 'react-dom-18' };
  const input =
    typeof entry === 'string'
      ? { entryPoints: [pathOf(entry)] }
      : { stdin: { contents: entry.text, loader: 'tsx' as const, resolveDir: pathOf('tests/client/pages') } };
  const { outputFiles } = await build({
    ...input,
    bundle: true,
    write: false,
    platform,
    format: platform === 'node' ? 'cjs' : 'esm',
    jsx: 'automatic',
    // Only the development build of React warns.
    jsxDev: true,
    define: { 'process.env.NODE_ENV': '"development"' },
    alias: { ...(react === '18' ? old : {}), ...CLIENT },
    nodePaths: [releasePath('')],
  });
  return outputFiles[0]?.text ?? '';
}

/** Bundles a text that imports files of the client's sources by their paths, such as `./index.ts`. */
export async function bundleClient(contents: string): Promise<string> {
  const stdin = { contents, resolveDir: pathOf('src/client') };
  const { outputFiles } = await build({ stdin, bundle: true, format: 'esm', write: false });
  return outputFiles[0]?.text ?? '';
}

const PAGE =
  '<!doctype html><html lang="en"><title>React</title><link rel="icon" href="data:,"><div id="root"></div><script type="module" src="page.js"></script></html>';
const POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:";

/** Serves a page with `script` on a free port, and forwards everything else to the relay. */
export async function servePage(script: string, relay: TestRelay): Promise<FakeLoadBalancer> {
  const front = await startFakeLoadBalancer({
    answer(req, res) {
      if (req.url === '/') {
        res.writeHead(200, { 'Content-Type': 'text/html', 'Content-Security-Policy': POLICY }).end(PAGE);
        return true;
      }
      if (req.url !== '/page.js') return false;
      res.writeHead(200, { 'Content-Type': 'text/javascript' }).end(script);
      return true;
    },
  });
  front.forwardTo(relay.port);
  return front;
}

export type ReactPage = Awaited<ReturnType<typeof startReactPage>>;

/** Starts a bot service whose answers the test gives, and a relay, and serves a page with `script`. */
export async function startReactPage(
  chromium: Chromium,
  script: string,
  environment: Record<string, string> = {},
) {
  const bot = await startBotRuns();
  const relay = await startRelay(bot.upstream.url, environment);
  const front = await servePage(script, relay);
  return {
    ...bot,
    relay,
    url: front.url,
    open: (profile?: Parameters<Chromium['open']>[1]) => chromium.open(`${front.url}/`, profile),
    /** Resets `page` for the next test: signs out and forgets all messages. This is faster than a new page. */
    async renew(page: Page) {
      await page.context().clearCookies();
      await page.goto(`${front.url}/`);
      bot.forget();
    },
    async close() {
      await front.close();
      await relay.close();
      await bot.upstream.close();
    },
  };
}

/** The `document` of the page, in which the function that uses it runs. */
declare const document: { querySelector(selector: string): { readonly textContent: string } | null };

/** Resolves when the first element that `selector` finds has the text `text`. */
export async function sees(page: Page, selector: string, text: string): Promise<void> {
  const wanted = { selector, text };
  // A function and not a text: the policy of the page forbids the evaluation of texts.
  const isThere = (of: typeof wanted) => document.querySelector(of.selector)?.textContent === of.text;
  await page.waitForFunction(isThere, wanted, { timeout: 60_000 }).catch(async (error) => {
    throw new Error(`no ${selector} is "${text}" in ${await page.innerHTML('body')}: ${error}`);
  });
}

/** Signs `USER` in with the hook named `name`. */
export async function signInBy(page: Page, name = 'chat'): Promise<void> {
  const { name: user, password } = USER;
  await page.evaluate(
    `test.bots.${name}.signIn(${JSON.stringify(user)}, ${JSON.stringify(password)}).then(() => {})`,
  );
  await sees(page, `#${name} .session`, USER.name);
}
