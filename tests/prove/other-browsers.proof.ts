import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { WebSocket } from 'undici';
import { longMessage, startDemoRelay } from '../harness/browser/chat-page.ts';
import { until } from '../harness/clock/until.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { type RelayProcess, stopProcesses } from '../harness/relay/process.ts';

/** A browser with one tab. */
interface OtherBrowser {
  open(url: string): Promise<void>;
  /** The value of a JavaScript expression in the page, as a string. */
  evaluate(expression: string): Promise<string>;
  close(): Promise<void>;
}

const OTHER_BROWSERS = [
  { name: 'Firefox ESR', install: 'firefox-esr', start: startFirefox, needs: ['/usr/bin/firefox-esr'] },
  {
    name: 'WebKitGTK',
    install: 'webkit2gtk-driver xvfb',
    start: startWebKit,
    needs: ['/usr/bin/WebKitWebDriver', '/usr/bin/xvfb-run'],
  },
].map((one) => ({ ...one, isInstalled: one.needs.every((path) => existsSync(path)) }));

for (const { name, install, isInstalled } of OTHER_BROWSERS) {
  if (isInstalled) continue;
  if (process.env.CI === 'true') throw new Error(`${name} is missing: apt-get install ${install}`);
  process.stderr.write(`Tests with ${name} are skipped; to run them: apt-get install ${install}\n`);
}

/** Starts a program in a group of its own, so that all its processes end with it. */
function start(program: string, args: readonly string[], home: string): ChildProcess {
  const env = { ...process.env, HOME: home, NO_PROXY: '*', no_proxy: '*' };
  return spawn(program, args, { env, detached: true, stdio: ['ignore', 'ignore', 'pipe'] });
}

async function end(child: ChildProcess, home: string): Promise<void> {
  const exited = once(child, 'exit');
  process.kill(-(child.pid as number), 'SIGKILL');
  await exited;
  // A process of the group may still write.
  rmSync(home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}

const newHome = () => mkdtemp(join(tmpdir(), 'bot-relay-browser-'));

/** Starts Firefox, which is driven by WebDriver BiDi (W3C) over its own WebSocket. */
async function startFirefox(): Promise<OtherBrowser> {
  const home = await newHome();
  const flags = [
    '--headless',
    '--no-remote',
    '--profile',
    home,
    '--remote-debugging-port',
    '0',
    'about:blank',
  ];
  const child = start('firefox-esr', flags, home);
  let printed = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  const address = () => /BiDi listening on (ws:\S+)/.exec(printed)?.[1];
  await until(() => address() !== undefined, 50);
  const socket = new WebSocket(`${address()}/session`);
  await new Promise((resolve) => socket.addEventListener('open', resolve));
  const answers = new Map<number, (answer: BidiAnswer) => void>();
  socket.addEventListener('message', ({ data }) => {
    const answer: BidiAnswer = JSON.parse(data);
    answers.get(answer.id)?.(answer);
  });
  let id = 0;
  async function send(method: string, params: object) {
    id += 1;
    const answered = new Promise<BidiAnswer>((resolve) => answers.set(id, resolve));
    socket.send(JSON.stringify({ id, method, params }));
    const { type, message, result } = await answered;
    if (type === 'error') throw new Error(`${method}: ${message}`);
    return result;
  }
  await send('session.new', { capabilities: {} });
  const { contexts: [{ context = '' } = {}] = [] } = await send('browsingContext.getTree', {});
  return {
    open: async (url) => void (await send('browsingContext.navigate', { context, url, wait: 'complete' })),
    async evaluate(expression) {
      const target = { target: { context }, awaitPromise: true };
      const { result } = await send('script.evaluate', { expression: `String(${expression})`, ...target });
      return `${result?.value}`;
    },
    async close() {
      socket.close();
      await end(child, home);
    },
  };
}

/** The members of answers that are read here. */
interface BidiAnswer {
  readonly id: number;
  readonly type: string;
  readonly message?: string;
  readonly result: {
    readonly contexts?: readonly { readonly context?: string }[];
    readonly result?: { readonly value?: unknown };
  };
}

/** Starts the small browser of WebKitGTK on a screen in memory. It is driven by WebDriver (W3C) over HTTP. */
async function startWebKit(): Promise<OtherBrowser> {
  const home = await newHome();
  const port = await freePort();
  const child = start('xvfb-run', ['-a', 'WebKitWebDriver', `--port=${port}`], home);
  child.stderr?.resume();
  async function ask(path: string, body?: object) {
    const init = body && { method: 'POST', body: JSON.stringify(body) };
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, init);
    const { value } = (await answer.json()) as { value: unknown };
    if (!answer.ok) throw new Error(`${path}: ${JSON.stringify(value)}`);
    return value;
  }
  const isUp = async () => (await ask('/status').catch(() => undefined)) !== undefined;
  await until(isUp, 100);
  const { sessionId } = (await ask('/session', { capabilities: {} })) as { sessionId: string };
  const session = `/session/${sessionId}`;
  return {
    open: async (url) => void (await ask(`${session}/url`, { url })),
    async evaluate(expression) {
      const script = `return String(${expression})`;
      return `${await ask(`${session}/execute/sync`, { script, args: [] })}`;
    },
    async close() {
      await fetch(`http://127.0.0.1:${port}${session}`, { method: 'DELETE' }).catch(() => {});
      await end(child, home);
    },
  };
}

jest.setTimeout(180_000);

const ROOT = "document.querySelector('bot-chat')?.shadowRoot";
const find = (selector: string) => `${ROOT}?.querySelector(${JSON.stringify(selector)})`;
const WORDS = longMessage(8);

let relay: RelayProcess;
let browser: OtherBrowser;
beforeAll(() => {
  relay = startDemoRelay();
});
afterEach(() => browser?.close());
afterAll(() => stopProcesses());

const posts = () => relay.stdout().match(/"method":"POST","route":"[^"]*message\/sse"/g)?.length ?? 0;
/** Waits until an element is there and shown. */
const shown = (selector: string) =>
  until(
    async () => (await browser.evaluate(`Boolean(${find(selector)}?.getClientRects().length)`)) === 'true',
    50,
  );

describe.each(OTHER_BROWSERS)('the chat page in $name', ({ start, isInstalled }) => {
  (isInstalled ? test : test.skip)(
    'signs in, streams an answer, and goes on with it after a reload',
    async () => {
      const url = `http://localhost:${await relay.listening()}/`;
      const before = posts();
      browser = await start();
      await browser.open(url);
      await shown('.sign-in button');
      await browser.evaluate(`${find('.sign-in button')}.click()`);
      await shown('.empty h3');
      await browser.evaluate(`Object.assign(${find('textarea')}, { value: ${JSON.stringify(WORDS)} })`);
      await browser.evaluate(`${find('.composer')}.requestSubmit()`);
      await shown('.answer[data-state=streaming]');
      const answer = () => browser.evaluate(`${find('.answer-text')}?.textContent`);
      await until(async () => (await answer()).startsWith('You said: word word'), 50);
      expect(await answer()).not.toBe(`You said: ${WORDS}`);
      await browser.open(url);
      await shown('.answer[data-state=streaming]');
      await shown('.answer[data-state=done]');
      const texts = `JSON.stringify([...${ROOT}?.querySelectorAll('.messages .text')].map((one) => one.textContent))`;
      expect(JSON.parse(await browser.evaluate(texts))).toEqual([WORDS, `You said: ${WORDS}`]);
      // The message is one paid run.
      expect(posts() - before).toBe(1);
    },
  );
});
