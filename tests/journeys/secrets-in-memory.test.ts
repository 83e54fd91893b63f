import { afterAll, describe, expect, test } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { freshFolder, type RelayProcess, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { makeAuthority, removeAuthorities } from '../harness/service/authority.ts';

const SECRET_MODULE = new URL('../../dist/secret.js', import.meta.url).href;

const { cert, key } = makeAuthority().issue('DNS:relay.test');
const KEY_LINE = key.split('\n')[1] as string;

/** All secret variables, each with another value. */
const SECRETS = {
  UPSTREAM_API_KEYS: CANARY.key,
  SESSION_SECRETS: CANARY.sessionSecret,
  CHANNEL_SECRET: CANARY.channelSecret,
  REDIS_URL: 'rediss://:canary-redis-password@127.0.0.1:1',
  REDIS_TLS_CA: cert,
  REDIS_TLS_CERT: cert,
  REDIS_TLS_KEY: key,
  OIDC_CLIENT_SECRET: 'canary-client-secret',
};
const OTHERS = { PORT: '0', HOST: '127.0.0.1', UPSTREAM_BASE_URL: 'http://127.0.0.1:9', BOTS: 'acme/helper' };

afterAll(async () => {
  removeAuthorities();
  await stopProcesses(['canary-redis-password', 'canary-client-secret', KEY_LINE]);
});

const imported = (code: string) => ['--import', `data:text/javascript,${encodeURIComponent(code)}`];

/** On a signal, prints the environment of a child process and a diagnostic report. */
const SHOW = imported(`
  import { execFileSync } from 'node:child_process';
  process.on('SIGUSR2', () => {
    const { environmentVariables, header } = process.report.getReport();
    process.stdout.write(execFileSync(process.execPath, ['-p', 'JSON.stringify(process.env)'], { encoding: 'utf8' }));
    process.stdout.write(JSON.stringify({ environmentVariables, commandLine: header.commandLine }) + '\\nshown\\n');
  });
`);

/** Two of the secrets are in the environment, and the others in `.env`. */
function startWithSecrets(): RelayProcess {
  const [first, second, ...others] = Object.entries(SECRETS);
  const folder = freshFolder({
    'users.json': '{"users":[]}',
    '.env': others.map(([name, value]) => `${name}="${value}"\n`).join(''),
  });
  const inEnvironment = Object.fromEntries([first, second] as [string, string][]);
  return startProcess({ folder, environment: { ...OTHERS, ...inEnvironment }, nodeArgs: SHOW });
}

test('a secret of the environment or of .env is in no child process and in no diagnostic report', async () => {
  const relay = startWithSecrets();
  await relay.listening();
  relay.signal('SIGUSR2');
  await relay.waitFor(/^shown$/m);
  // Other variables are there, so this is the real environment.
  expect(relay.stdout().match(/"BOTS":"acme\/helper"/g)).toHaveLength(2);
  for (const name of Object.keys(SECRETS)) expect(relay.stdout()).not.toContain(name);
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
  const crashes: [how: string, what: string, nodeArgs: string[], shown: RegExp][] = [
    ['thrown', 'throw error;', [], masked],
    ['thrown and traced', 'throw error;', ['--trace-uncaught', '--enable-source-maps'], masked],
    ['thrown as it is and traced', 'throw hidden;', ['--trace-uncaught'], fingerprint],
    ['rejected and traced', later('error'), ['--trace-uncaught'], masked],
    ['rejected as it is', later('hidden'), [], /reason "\[object Object\]"/],
  ];
  testSideBySide(
    crashes.map(([how, what, nodeArgs, shown]) => [
      `is not shown when it is ${how}`,
      async () => {
        const relay = startProcess({ nodeArgs: [...nodeArgs, ...crash(what)] });
        expect((await relay.exited).code).toBe(1);
        // The scan for canaries is in `stopProcesses`.
        expect(relay.stderr()).toMatch(shown);
        expect(relay.stdout()).toBe('');
      },
    ]),
  );
});
