import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { transform } from 'esbuild';
import { call, expectProblem } from '../support/call.ts';
import { freshFolder, inFrontOf, startProcess, stopProcesses } from '../support/process.ts';

const SOURCE = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const OWN = ['chat.css', 'chat.js', 'chat-messages.js', 'chat-session.js', 'chat-tools.js', 'chat-icon.svg'];

const IMPORT = /^(?:import\s*|(?:import|export)\s[^'";]*?from\s*)['"]([^'"]+)['"]/gm;

afterEach(() => stopProcesses());

async function startDemo(environment: Record<string, string> = {}) {
  const relay = startProcess({ environment: { PORT: '0', ...environment } });
  return { relay, port: await relay.listening() };
}

/** Every module that can be reached from the page's, by path; each import is followed as a browser does. */
async function modulesFrom(port: number, entry: string): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const ahead = [entry];
  for (const path of ahead) {
    if (found.has(path)) continue;
    const { status, headers, body } = await call(port, path);
    expect([path, status, headers['content-type']]).toEqual([path, 200, 'text/javascript; charset=utf-8']);
    found.set(path, body);
    for (const [, specifier = ''] of body.matchAll(IMPORT)) {
      // What a browser cannot load: a bare name.
      expect(specifier).toMatch(/^\.\//);
      ahead.push(new URL(specifier, `http://relay${path}`).pathname);
    }
  }
  return found;
}

describe('the chat page', () => {
  test('is served with its files, of exact types and under a strict policy', async () => {
    const { port } = await startDemo();
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
    expect(page.body).toContain('data-mode="password" data-bots="demo/echo"');
    // Nothing inline: neither code nor style nor a handler.
    expect(page.body).not.toMatch(/<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|\{\{/);
    const links = [...page.body.matchAll(/\s(?:src|href)="\.\/([^"]+)"/g)].map(([, name]) => name as string);
    expect(new Set(links)).toEqual(
      new Set(['chat.css', 'chat.js', 'chat-icon.svg', 'bot-relay-client.js', 'auth/login']),
    );
    const types = await Promise.all(
      OWN.map(async (name) => (await call(port, `/${name}`)).headers['content-type']),
    );
    const script = 'text/javascript; charset=utf-8';
    expect(types).toEqual(['text/css; charset=utf-8', script, script, script, script, 'image/svg+xml']);
  });

  test('has a client that a browser can load: every module that it imports is there', async () => {
    const { port } = await startDemo();
    const modules = await modulesFrom(port, '/chat.js');
    const names = [...modules.keys()];
    expect(names).toEqual(expect.arrayContaining(['/chat.js', '/chat-messages.js', '/bot-relay-client.js']));
    // The client's own parts, and the parser's.
    for (const part of ['message-stream', 'relay-error', 'read-events', 'index', 'parse'])
      expect(names).toContainEqual(
        expect.stringMatching(new RegExp(`^/bot-relay-client-\\d+-${part}\\.js$`)),
      );
    expect([...modules.values()].filter((code) => code.includes('sourceMappingURL'))).toEqual([]);
  });

  test('has one from TypeScript, too, where the relay runs from its sources', async () => {
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
      // As JavaScript: a type that was left would be an error.
      await Promise.all(
        [...modules.values()].map((code) => transform(code, { loader: 'js', format: 'esm' })),
      );
    } finally {
      relay.kill('SIGKILL');
      await new Promise((resolve) => relay.once('close', resolve));
    }
  });

  test('takes GET and HEAD of exactly its paths, which the log knows', async () => {
    const { relay, port } = await startDemo();
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
    await relay.waitFor(/"method":"HEAD","route":"\/","status":200,"outcome":"ok"/);
    await relay.waitFor(/"method":"POST","route":"\/chat\.js","status":405/);
  });

  test('is below BASE_PATH, and a link without the last slash leads there', async () => {
    const { relay, port } = await startDemo({ BASE_PATH: '/chat-api' });
    expect((await call(port, '/chat-api/')).body).toContain('href="./chat.css"');
    expect(await call(port, '/chat-api')).toMatchObject({ status: 307, headers: { location: '/chat-api/' } });
    expect((await modulesFrom(port, '/chat-api/chat.js')).size).toBeGreaterThan(8);
    expect((await call(port, '/')).status).toBe(404);
    await relay.waitFor(/Open http:\/\/localhost:\d+\/chat-api\/ in a browser/);
  });

  test('knows how to sign in, and the bots that there are', async () => {
    const { port } = await startDemo({ AUTH_MODE: 'guest', BOTS: 'demo/*,acme/it"s<b>' });
    const { body } = await call(port, '/');
    expect(body).toContain('data-mode="guest"');
    const bots = 'demo/echo demo/guide demo/slow demo/steps demo/resume acme/it&#34;s&#60;b&#62;';
    expect(body).toContain(`data-bots="${bots}"`);
  });

  test('is there in the demo only', async () => {
    const real = startProcess({
      environment: { ...inFrontOf('http://127.0.0.1:9'), AUTH_MODE: 'guest' },
    });
    const port = await real.listening();
    for (const path of ['/', '/chat.css', '/chat.js', '/bot-relay-client.js'])
      expectProblem(await call(port, path), 404, 'not_found');
  });
});
