import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, test } from '@jest/globals';
import { ROOT } from '../harness/documents/sources.ts';

let server: Server | undefined;
afterEach(() => void server?.close());

/** The exit code of the check, if a relay at `host` answers `status` and the check gets `HOST`. */
async function codeOf(host: string, HOST: string | undefined, status = 200): Promise<number> {
  server = createServer((req, res) => {
    res.writeHead(req.url === '/chat/healthz' ? status : 404).end();
  }).listen(0, host);
  await once(server, 'listening');
  const PORT = String((server.address() as AddressInfo).port);
  const env = { PORT, BASE_PATH: '/chat', ...(HOST !== undefined && { HOST }) };
  const check = spawn(process.execPath, [join(ROOT, 'deploy/healthcheck.js')], { env, stdio: 'ignore' });
  const [code] = await once(check, 'exit');
  return code;
}

test.each([
  ['0.0.0.0', undefined],
  ['0.0.0.0', '0.0.0.0'],
  ['127.0.0.2', '127.0.0.2'],
  ['::1', '::1'],
])('the health check of the image asks a relay at %s by HOST=%s', async (host, HOST) => {
  expect(await codeOf(host, HOST)).toBe(0);
});

test('the health check of the image fails if the relay is not alive', async () => {
  expect(await codeOf('0.0.0.0', undefined, 503)).toBe(1);
});
