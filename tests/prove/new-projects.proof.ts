import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, jest, test } from '@jest/globals';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { getsAnAnswer, noticesBreak, signsIn } from '../harness/browser/example-page.ts';
import { emptyProject, type Project } from '../harness/clients/example-project.ts';
import { codeOf } from '../harness/documents/markdown.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';

/** A way to the npm registry, and to no other host. */
interface RegistryProxy {
  /** The variables that have npm, curl and Node.js use it for all hosts but this one. */
  readonly environment: Readonly<Record<string, string>>;
  /** The hosts that programs have asked for, each with its port. */
  readonly asked: Set<string>;
  /** The registry's host, with its port. */
  readonly registry: string;
  close(): Promise<void>;
}

/** Starts a proxy that refuses all hosts but that of the npm registry. */
async function startRegistryProxy(): Promise<RegistryProxy> {
  const { hostname, port, protocol } = new URL(
    execFileSync('npm', ['config', 'get', 'registry'], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim(),
  );
  const registryPort = port || (protocol === 'http:' ? '80' : '443');
  const registry = `${hostname}:${registryPort}`;
  const asked = new Set<string>();
  const sockets = new Set<Socket>();
  const server = createServer(({ url }, res) => {
    asked.add(`${url}`);
    res.writeHead(403).end();
  });
  server.on('connect', ({ url }, client: Socket, head: Buffer) => {
    asked.add(`${url}`);
    if (url !== registry) return void client.end('HTTP/1.1 403 Forbidden\r\n\r\n');
    const upstream = connect(Number(registryPort), hostname, () => {
      client.write('HTTP/1.1 200 OK\r\n\r\n');
      upstream.write(head);
      upstream.pipe(client).pipe(upstream);
    });
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(one);
      one.on('error', () => {}).once('close', () => other.destroy());
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const [local, names] = [
    'localhost,127.0.0.1,::1',
    ['http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY'],
  ];
  return {
    environment: {
      ...Object.fromEntries(names.map((name) => [name, url])),
      ...{ no_proxy: local, NO_PROXY: local, NODE_USE_ENV_PROXY: '1' },
    },
    ...{ asked, registry },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const documents = ['docs/front-end.md', 'docs/front-end/react.md'].map((path) =>
  readFileSync(join(ROOT, path), 'utf8'),
);
const code = (name: string) => codeOf(documents.join('\n'), name);

let project: Project | undefined;
let proxy: RegistryProxy | undefined;
afterEach(async () => {
  await project?.remove();
  await proxy?.close();
  project = proxy = undefined;
  await stopProcesses();
});

/** The files of each, in its folder. */
const FILES: Readonly<Record<string, () => Readonly<Record<string, string>>>> = {
  'new-vite': () => ({ 'vite.config.ts': code('vite-config'), 'src/App.tsx': code('react') }),
  'new-next': () => ({
    'next.config.ts': code('next-config'),
    'app/page.tsx': `'use client';\n${code('react')}`,
  }),
};

describeInChromium('what the document says of a new project', () => {
  const chromium = oneChromium();
  jest.setTimeout(480_000);

  test.each(Object.keys(FILES))('gives it an answer, with the npm registry alone: %s', async (name) => {
    const started = performance.now();
    const [relayPort, port] = [await freePort(), await freePort()];
    const relay = startProcess({ environment: { PORT: String(relayPort) } });
    await relay.listening();
    proxy = await startRegistryProxy();
    project = emptyProject(name, relayPort, proxy.environment);
    await project.install(code(name));
    const installed = performance.now();
    for (const [file, text] of Object.entries(FILES[name]?.() ?? {})) project.write(`my-chat/${file}`, text);
    const url = await project.serve(`cd my-chat; npm run dev -- --port`, port);
    const { page, complaints } = await chromium.open(url);
    await signsIn(page);
    await getsAnAnswer(page);
    const answered = performance.now();
    process.stderr.write(`${name}: an answer after ${((answered - started) / 1000).toFixed(0)} s\n`);
    // A slow machine delays both. With npm's cache, it is 0.9 with Vite and 0.4 with Next.
    expect(answered - installed).toBeLessThan(3 * (installed - started));
    expect(complaints).toEqual([]);
    expect(await noticesBreak(page, relay)).toBeLessThan(5_000);
    // That of Next takes half a minute, and the proof of its example builds nearly the same.
    if (name === 'new-vite') await project.run('cd my-chat; npm run build');
    expect([...proxy.asked]).toEqual([proxy.registry]);
  });
});
