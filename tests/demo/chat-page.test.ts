import { spawn } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { transform } from 'esbuild';
import { loadConfig } from '../../src/config/config.ts';
import { chatPages } from '../../src/page/chat-page.ts';
import { call, expectProblem } from '../support/call.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  startProcess,
  stopProcesses,
} from '../support/process.ts';

const SOURCE = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const SCRIPTS = [
  ...['chat.js', 'chat-answer.js', 'chat-answers.js', 'chat-conversation.js', 'chat-files.js'],
  ...['chat-history.js', 'chat-messages.js', 'chat-resumed.js', 'chat-session.js', 'chat-sign-in.js'],
  ...['chat-store.js'],
  'chat-tools.js',
];

const IMPORT = /^(?:import\s*|(?:import|export)\s[^'";]*?from\s*)['"]([^'"]+)['"]/gm;

const start = (environment: Record<string, string>) =>
  startProcess({ environment: { PORT: '0', ...environment } });

/** The relays of all tests. They start at the same time. */
let plain: RelayProcess;
let guestsBelow: RelayProcess;
let real: RelayProcess;
beforeAll(() => {
  plain = start({});
  guestsBelow = start({ BASE_PATH: '/chat-api', AUTH_MODE: 'guest', BOTS: 'demo/*,acme/it"s<b>' });
  real = start({ ...inFrontOf('http://127.0.0.1:9'), AUTH_MODE: 'guest' });
});
afterAll(() => stopProcesses());

/** All modules that the module `entry` imports, by path; imports are followed as in a browser. */
async function modulesFrom(port: number, entry: string): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const ahead = [entry];
  for (const path of ahead) {
    if (found.has(path)) continue;
    const { status, headers, body } = await call(port, path);
    expect([path, status, headers['content-type']]).toEqual([path, 200, 'text/javascript; charset=utf-8']);
    found.set(path, body);
    for (const [, specifier = ''] of body.matchAll(IMPORT)) {
      // A browser cannot load a bare module name.
      expect(specifier).toMatch(/^\.\//);
      ahead.push(new URL(specifier, `http://relay${path}`).pathname);
    }
  }
  return found;
}

describe('the chat page', () => {
  test('is served with its files, their media types and a strict content security policy', async () => {
    const port = await plain.listening();
    const page = await call(port, '/');
    expect(page).toMatchObject({
      status: 200,
      headers: { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' },
    });
    expect(page.headers['content-security-policy']?.toString().split('; ')).toEqual([
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "connect-src 'self'",
      "img-src 'self'",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
      "trusted-types 'none'",
    ]);
    expect(page.headers['x-content-type-options']).toBe('nosniff');
    expect(page.body).toContain('data-mode="password" data-bots="demo/echo" data-operations="message chat"');
    // No inline code, style or handler.
    expect(page.body).not.toMatch(/<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|\{\{/);
    const links = [...page.body.matchAll(/\s(?:src|href)="\.\/([^"]+)"/g)].map(([, name]) => name as string);
    expect(new Set(links)).toEqual(
      new Set([
        ...['chat.css', 'chat.js', 'chat-icon.svg', 'bot-relay-client.js', 'bot-relay-history.js'],
        'auth/login',
      ]),
    );
    const types = await Promise.all(
      ['chat.css', 'chat-icon.svg', ...SCRIPTS].map(
        async (name) => (await call(port, `/${name}`)).headers['content-type'],
      ),
    );
    const script = 'text/javascript; charset=utf-8';
    expect(types).toEqual(['text/css; charset=utf-8', 'image/svg+xml', ...SCRIPTS.map(() => script)]);
  });

  test('has a client of which a browser can load every module', async () => {
    const port = await plain.listening();
    const modules = await modulesFrom(port, '/chat.js');
    const names = [...modules.keys()];
    expect(names).toEqual(
      expect.arrayContaining(
        [...SCRIPTS, 'bot-relay-client.js', 'bot-relay-history.js'].map((name) => `/${name}`),
      ),
    );
    // What the entries of the client share.
    expect(names).toContainEqual(expect.stringMatching(/^\/bot-relay-chunk-\w+\.js$/));
    expect([...modules.values()].filter((code) => code.includes('sourceMappingURL'))).toEqual([]);
  });

  test('has a client also if the relay runs from its TypeScript sources', async () => {
    const relay = spawn(process.execPath, [SOURCE], { cwd: freshFolder(), env: { PORT: '0' } });
    try {
      let printed = '';
      const port = await new Promise<number>((resolve) => {
        relay.stdout.setEncoding('utf8').on('data', (text: string) => {
          printed += text;
          const [, found] = printed.match(/"port":(\d+).*"msg":"listening"/) ?? [];
          if (found) resolve(Number(found));
        });
      });
      const modules = await modulesFrom(port, '/chat.js');
      expect(modules.size).toBeGreaterThan(8);
      // Parsed as JavaScript, so a type that is left would be an error.
      await Promise.all(
        [...modules.values()].map((code) => transform(code, { loader: 'js', format: 'esm' })),
      );
    } finally {
      relay.kill('SIGKILL');
      await new Promise((resolve) => relay.once('close', resolve));
    }
  });

  test('serves no hidden files of its folder, and none of another type', () => {
    const odd = ['.hidden.js', 'notes.txt'].map(
      (name) => new URL(`../../dist/page/files/${name}`, import.meta.url),
    );
    for (const file of odd) writeFileSync(file, '');
    try {
      const paths = chatPages(loadConfig({})).map(({ path }) => path);
      expect(paths).toContain('/chat.css');
      expect(paths).not.toContain('/.hidden.js');
      expect(paths).not.toContain('/notes.txt');
    } finally {
      for (const file of odd) rmSync(file);
    }
  });

  test('answers GET and HEAD at exactly its paths, which the log names', async () => {
    const port = await plain.listening();
    const [get, head] = [await call(port, '/'), await call(port, '/', { method: 'HEAD' })];
    expect(head).toMatchObject({ status: 200, body: '' });
    expect(head.headers['content-length']).toBe(String(Buffer.byteLength(get.body)));
    for (const path of ['/', '/chat.js', '/bot-relay-client.js']) {
      const refused = await call(port, path, { method: 'POST' });
      expectProblem(refused, 405, 'method_not_allowed');
      expect(refused.headers.allow).toBe('GET, HEAD');
    }
    const nowhere = [
      ...['/index.html', '/chat.css/', '/Chat.css', '/chat.ts', '/page/chat.js', '//', '/chat.js.map'],
      ...['/../package.json', '/..%2fpackage.json', '/%2e%2e/package.json', '/chat.css%00', '/./chat.css'],
      ...['/node_modules/eventsource-parser/package.json', '/bot-relay-client/../chat.js', '/__proto__'],
    ];
    for (const path of nowhere) expect([path, (await call(port, path)).status]).toEqual([path, 404]);
    await plain.waitFor(/"method":"HEAD","route":"\/","status":200,"outcome":"ok"/);
    await plain.waitFor(/"method":"POST","route":"\/chat\.js","status":405/);
  });

  test('is below BASE_PATH, also without the last slash', async () => {
    const port = await guestsBelow.listening();
    expect((await call(port, '/chat-api/')).body).toContain('href="./chat.css"');
    expect(await call(port, '/chat-api')).toMatchObject({ status: 307, headers: { location: '/chat-api/' } });
    expect((await modulesFrom(port, '/chat-api/chat.js')).size).toBeGreaterThan(8);
    expect((await call(port, '/')).status).toBe(404);
    await guestsBelow.waitFor(/Open http:\/\/localhost:\d+\/chat-api\/ in a browser/);
  });

  test('knows the way to sign in and the bots', async () => {
    const { body } = await call(await guestsBelow.listening(), '/chat-api/');
    expect(body).toContain('data-mode="guest"');
    const bots = 'demo/echo demo/guide demo/slow demo/steps demo/resume demo/tools acme/it&#34;s&#60;b&#62;';
    expect(body).toContain(`data-bots="${bots}"`);
  });

  test('exists only in the demo', async () => {
    const port = await real.listening();
    for (const path of ['/', '/chat.css', '/chat.js', '/bot-relay-client.js'])
      expectProblem(await call(port, path), 404, 'not_found');
  });
});
