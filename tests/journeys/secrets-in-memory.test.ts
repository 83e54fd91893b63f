import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, test } from '@jest/globals';
import { freshFolder, startProcess, stopProcesses } from '../support/process.ts';
import { CANARY } from '../support/relay.ts';
import { argsOf, workerPids } from '../support/workers.ts';

const SECRET_MODULE = new URL('../../dist/secret.js', import.meta.url).href;

/** All that can be a secret, with a value of its own each. */
const SECRETS = {
  UPSTREAM_API_KEYS: CANARY.key,
  SESSION_SECRETS: CANARY.sessionSecret,
  REDIS_URL: 'redis://:canary-redis-password@127.0.0.1:1',
  OIDC_CLIENT_SECRET: 'canary-client-secret',
};
const OTHERS = { PORT: '0', HOST: '127.0.0.1', UPSTREAM_BASE_URL: 'http://127.0.0.1:9', BOTS: 'acme/helper' };

afterEach(() => stopProcesses(['canary-redis-password', 'canary-client-secret']));

const imported = (code: string) => ['--import', `data:text/javascript,${encodeURIComponent(code)}`];

/** On a signal, prints the environment that a child process gets, and what a diagnostic report holds. */
const SHOW = imported(`
  import { execFileSync } from 'node:child_process';
  process.on('SIGUSR2', () => {
    const { environmentVariables, header } = process.report.getReport();
    process.stdout.write(execFileSync(process.execPath, ['-p', 'JSON.stringify(process.env)'], { encoding: 'utf8' }));
    process.stdout.write(JSON.stringify({ environmentVariables, commandLine: header.commandLine }) + '\\nshown\\n');
  });
`);

describe('a secret of the environment', () => {
  test.each([
    ['the environment', { ...OTHERS, ...SECRETS }, {}],
    ['.env', OTHERS, SECRETS],
  ])(
    'is passed on to no child process and to no diagnostic report, where it came by %s (O4)',
    async (_how, environment, dotenv) => {
      const lines = Object.entries(dotenv).map(([name, value]) => `${name}=${value}\n`);
      const folder = freshFolder({ 'users.json': '{"users":[]}', '.env': lines.join('') });
      const relay = startProcess({ folder, environment, nodeArgs: SHOW });
      await relay.listening();
      relay.signal('SIGUSR2');
      await relay.waitFor(/^shown$/m);
      // What is no secret is there: so this is the environment indeed.
      expect(relay.stdout().match(/"BOTS":"acme\/helper"/g)).toHaveLength(2);
      for (const name of Object.keys(SECRETS)) expect(relay.stdout()).not.toContain(name);
    },
  );
});

describe('a secret of a relay of several workers', () => {
  test.each([
    ['the environment', { ...OTHERS, ...SECRETS }, {}],
    ['.env', OTHERS, SECRETS],
  ])('reaches them in no way that shows, where it came by %s (O4)', async (_how, environment, dotenv) => {
    const lines = Object.entries(dotenv).map(([name, value]) => `${name}=${value}\n`);
    const folder = freshFolder({ 'users.json': '{"users":[]}', '.env': lines.join('') });
    const relay = startProcess({ folder, environment: { ...environment, WORKERS: '2' }, nodeArgs: SHOW });
    await relay.waitFor(/"worker":2.*"msg":"listening"/);
    const workers = [...workerPids({ relay }).values()];
    expect(workers).toHaveLength(2);
    for (const pid of [relay.pid, ...workers]) {
      process.kill(pid, 'SIGUSR2');
      await relay.waitFor(new RegExp(`(^shown$[^]*){${1 + [relay.pid, ...workers].indexOf(pid)}}`, 'm'));
      expect(argsOf(pid).join()).not.toMatch(/canary/);
    }
    expect(relay.stdout().match(/"BOTS":"acme\/helper"/g)).toHaveLength(6);
    for (const name of Object.keys(SECRETS)) expect(relay.stdout()).not.toContain(name);
    // What the system shows of a process, and the primary's own start environment is the operator's.
    for (const pid of workers) expect(readFileSync(`/proc/${pid}/environ`, 'utf8')).not.toMatch(/canary/);
  });
});

describe('a secret in an error that nothing catches', () => {
  const crash = (what: string) =>
    imported(`
      import { secret } from '${SECRET_MODULE}';
      const hidden = secret(['canary-api', 'key-5b1f0c'].join('-'));
      const error = Object.assign(new Error('key ' + hidden, { cause: { hidden } }), { hidden, list: [hidden] });
      ${what}
    `);

  const masked = /\[secret\]/;
  const fingerprint = /\{ fingerprint: '[0-9a-f]{8}' \}/;
  const later = (what: string) => `setTimeout(() => Promise.reject(${what})); await new Promise(() => {});`;
  test.each([
    ['thrown', 'throw error;', [], masked],
    ['thrown and traced', 'throw error;', ['--trace-uncaught', '--enable-source-maps'], masked],
    ['thrown as it is and traced', 'throw hidden;', ['--trace-uncaught'], fingerprint],
    ['rejected and traced', later('error'), ['--trace-uncaught'], masked],
    ['rejected as it is', later('hidden'), [], /reason "\[object Object\]"/],
  ])('is not shown when it is %s (O4)', async (_how, what, nodeArgs, shown) => {
    const relay = startProcess({ nodeArgs: [...nodeArgs, ...crash(what)] });
    expect((await relay.exited).code).toBe(1);
    // The scan for canaries is in `stopProcesses`.
    expect(relay.stderr()).toMatch(shown);
    expect(relay.stdout()).toBe('');
  });
});
