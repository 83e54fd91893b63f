import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { parseDockerfile } from '../harness/documents/dockerfile.ts';

const root = new URL('../../', import.meta.url);
const read = (name: string) => readFileSync(new URL(name, root), 'utf8');
const steps = parseDockerfile(read('deploy/Dockerfile'));
const image = steps.filter(({ stage }) => stage === 'relay');
const texts = (instruction: string, of = image) =>
  of.filter((step) => step.instruction === instruction).map(({ text }) => text);

describe('deploy/Dockerfile', () => {
  test('uses the version of Node.js that the project pins', () => {
    const { devDependencies } = JSON.parse(read('package.json')) as { devDependencies: { node: string } };
    const [base, ...others] = texts('FROM', steps);
    expect(base).toBe(`node:${devDependencies.node}-trixie-slim AS base`);
    expect(others.every((from) => /^(base|dependencies|relay)\b/.test(from))).toBe(true);
  });

  test('is the relay alone, and with the packages for models as its target `service`', () => {
    expect(steps.at(-1)).toMatchObject({ instruction: 'FROM', text: 'relay' });
    expect(steps.filter(({ stage }) => stage === 'service').map(({ text }) => text)).toEqual([
      'relay AS service',
      '--from=model-packages /app/node_modules node_modules',
      'root',
      // It belongs to the user as whom the service runs, and so does a volume that is mounted there.
      'install -d -o node -g node -m 700 /data',
      'node',
      '4000 4001',
    ]);
  });

  test('runs the relay as a user who owns no file, and without a shell, which would not pass signals on', () => {
    expect(texts('USER')).toEqual(['node']);
    expect(steps.filter(({ text }) => text.includes('--chown'))).toEqual([]);
    // The form without a shell. `systemd.test.ts` compares the flags with those of `npm start`.
    expect(JSON.parse(texts('CMD')[0] as string)).toEqual(expect.arrayContaining(['node', 'dist/main.js']));
    expect(texts('ENTRYPOINT')).toEqual([]);
    expect(texts('ENV')).toEqual(['NODE_ENV=production']);
  });

  test('checks its health with Node.js itself', () => {
    const [check = ''] = texts('HEALTHCHECK');
    expect(JSON.parse(check.replace(/^.* CMD /, ''))).toEqual(['node', 'healthcheck.js']);
    expect(steps.filter(({ text }) => /\b(curl|wget|apt-get|apk)\b/.test(text))).toEqual([]);
  });

  test('contains only files that it names, and no build tools', () => {
    const allowed = read('.dockerignore')
      .match(/^!.*$/gm)
      ?.map((line) => line.slice(1));
    const copied = texts('COPY', steps).filter((text) => !text.startsWith('--from'));
    const sources = copied.flatMap((text) => text.split(/\s+/).slice(0, -1));
    expect(new Set(sources)).toEqual(new Set(allowed));
    for (const source of sources) expect(existsSync(new URL(source, root))).toBe(true);
    expect(read('.dockerignore')).toMatch(/^\*$/m);
    expect(texts('ADD', steps)).toEqual([]);
    expect(texts('COPY').filter((text) => text.startsWith('--from=build'))).toEqual([
      '--from=build /app/dist dist',
    ]);
    expect(
      texts(
        'RUN',
        steps.filter(({ stage }) => stage === 'dependencies'),
      ).join(),
    ).toContain('--omit=dev');
  });
});

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
  const check = spawn(process.execPath, [fileURLToPath(new URL('deploy/healthcheck.js', root))], {
    env,
    stdio: 'ignore',
  });
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
