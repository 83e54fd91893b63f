import { afterEach, describe, expect, test } from '@jest/globals';
import { type Config, ConfigError, loadConfig } from '../src/config/config.ts';
import type { Environment } from '../src/config/environment.ts';
import { risksOf } from '../src/config/risks.ts';
import { isVariable, secretVariables, VARIABLES } from '../src/config/variables.ts';
import { freshFolder, startProcess, stopProcesses } from './support/process.ts';
import { CANARY } from './support/relay.ts';

/** The configuration, or what is wrong with it. */
function load(environment: Environment, inFile: readonly string[] = []): Config | readonly string[] {
  try {
    return loadConfig(environment, inFile);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems;
  }
}

const unknown = (name: string, says: string) => [`${name} is not a variable of the relay: ${says}`];

/** Variables that others set, as they are found on real machines. */
const PLATFORMS: Record<string, Record<string, string>> = {
  'a Kubernetes pod beside services named redis, bots, metrics and nearly so': {
    HOSTNAME: 'relay-6d4b75cb6d-hx2lv',
    KUBERNETES_PORT: 'tcp://10.96.0.1:443',
    KUBERNETES_SERVICE_HOST: '10.96.0.1',
    ...serviceLinks('REDIS', 6379),
    ...serviceLinks('BOTS', 80),
    ...serviceLinks('METRICS', 9464),
    ...serviceLinks('METRIC', 80),
    ...serviceLinks('METRICS_2', 80),
  },
  "Node.js's image": {
    NODE_VERSION: '24.21.0',
    YARN_VERSION: '1.22.22',
    NODE_OPTIONS: '--max-old-space-size=512',
    NODE_EXTRA_CA_CERTS: '/dev/null',
    NODE_PATH: '/usr/lib/node_modules',
    NODE_NO_WARNINGS: '1',
    NODE_NAME: 'worker-3',
    NODE_IP: '10.0.0.3',
    NODE_HOME: '/opt/node',
  },
  'a desktop': {
    USER: 'ada',
    USERNAME: 'ada',
    LOGNAME: 'ada',
    HOSTTYPE: 'x86_64',
    HOST_TYPE: 'x86_64',
    SESSION_MANAGER: 'local/laptop:@/tmp/.ICE-unix/1',
    XDG_SESSION_ID: '2',
    DESKTOP_SESSION: 'gnome',
    LOG_FILE: '/var/log/x',
    PS1: '$ ',
    _: '/usr/bin/node',
  },
  'a systemd service': {
    INVOCATION_ID: '3b1f9f6c7a0e4d6f8a4f6f1d7c1e2a3b',
    JOURNAL_STREAM: '9:12345',
    SYSTEMD_EXEC_PID: '814',
    NOTIFY_SOCKET: '/run/systemd/notify',
    LOGS_DIRECTORY: '/var/log/relay',
    WATCHDOG_USEC: '1000000',
  },
  'a Heroku dyno': {
    DYNO: 'web.1',
    DATABASE_URL: 'postgres://db',
    REDIS_TLS_URL: 'rediss://:canary@host:6380',
    REDISCLOUD_URL: 'redis://:canary@host:6379',
    WEB_CONCURRENCY: '2',
    WEB_MEMORY: '512',
    BASE_URL: 'https://x.example.com',
    CLIENT_ID: 'x',
    USERS_DB: 'x',
  },
  'a GitHub runner': {
    CI: 'true',
    GITHUB_ACTIONS: 'true',
    GITHUB_BASE_REF: 'main',
    RUNNER_OS: 'Linux',
    ACTIONS_RUNNER_ACTION_ARCHIVE_CACHE: '/opt/cache',
    BASH_ENV: '',
    AGENT_TOOLSDIRECTORY: '/opt/hostedtoolcache',
  },
};

/** What Kubernetes sets in every container for a service of its namespace. */
function serviceLinks(service: string, port: number): Record<string, string> {
  const url = `tcp://10.96.12.7:${port}`;
  const link = `${service}_PORT_${port}_TCP`;
  return {
    [`${service}_SERVICE_HOST`]: '10.96.12.7',
    [`${service}_SERVICE_PORT`]: String(port),
    [`${service}_SERVICE_PORT_HTTP`]: String(port),
    [`${service}_PORT`]: url,
    [link]: url,
    [`${link}_PROTO`]: 'tcp',
    [`${link}_PORT`]: String(port),
    [`${link}_ADDR`]: '10.96.12.7',
  };
}

describe('a mistyped variable in the environment', () => {
  test.each([
    ['OIDC_REQUIRED_CLAIMS', 'OIDC_REQUIRED_CLAIM'],
    ['OIDC_REQUIRD_CLAIM', 'OIDC_REQUIRED_CLAIM'],
    ['OIDC_REQUIERD_CLAIM', 'OIDC_REQUIRED_CLAIM'],
    ['ODIC_ISSUER', 'OIDC_ISSUER'],
    ['UPSTREAM_API_KEY', 'UPSTREAM_API_KEYS'],
    ['SESSION_SECRET_FILE', 'SESSION_SECRETS_FILE'],
    ['SESSIONSECRETS', 'SESSION_SECRETS'],
    ['MAX_EXECUTON_MS', 'MAX_EXECUTION_MS'],
    ['USER_FILE', 'USERS_FILE'],
    ['WORKER', 'WORKERS'],
    ['NODE_EMV', 'NODE_ENV'],
    ['REDIS_URI', 'REDIS_URL'],
  ])('%s is an error that names %s', (name, right) => {
    expect(load({ [name]: 'canary' })).toEqual(unknown(name, `did you mean ${right}?`));
    // It is no excuse that the right one is there as well.
    expect(load({ LOG_LEVEL: 'info', [name]: 'canary' })).toHaveLength(1);
  });

  test('is one wherever a letter or two are added, missing or changed', () => {
    const files = secretVariables().map((name) => `${name}_FILE`);
    for (const name of [...Object.keys(VARIABLES), ...files].filter(({ length }) => length >= 6)) {
      const wrong = [...name].flatMap((_letter, at) => {
        const [before, after] = [name.slice(0, at), name.slice(at)];
        const changed = [`${before}Q${after.slice(1)}`, `${before}QJ${after.slice(2)}`];
        return [before + after.slice(1), before + after.slice(2), `${before}Q${after}`, ...changed];
      });
      const names = [...new Set(wrong)].filter((one) => !isVariable(one));
      expect(names.length).toBeGreaterThan(name.length);
      expect(load(Object.fromEntries(names.map((one) => [one, 'x'])))).toEqual(
        names.map((one) => expect.stringMatching(`^${one} is not .*: did you mean`)),
      );
    }
  });

  test.each([
    ['OIDC_REQUIRED_CLAIMANTS'],
    ['POST'],
    ['PORTS'],
    ['HOSTS'],
    ['BOT'],
    ['MY_OIDC_REQUIRED_CLAIM'],
  ])('is not %s, which may be somebody else', (name) => {
    expect(load({ [name]: 'x' })).toMatchObject({ demo: true });
  });

  test.each(['PORT', 'HOST', 'RATE_LIMIT', 'BOTS_FILE'])(
    'is also %s_FILE, since it takes no file',
    (name) => {
      expect(load({ [`${name}_FILE`]: 'canary' })).toEqual(
        unknown(`${name}_FILE`, `${name} cannot be given as a file`),
      );
    },
  );

  test('is none if it is empty', () => {
    expect(load({ OIDC_REQUIRED_CLAIMS: '', PORT_FILE: '' })).toMatchObject({ demo: true });
  });

  test('comes with what else is wrong', () => {
    expect(load({ AUTH_MODES: 'oidc', PORT: 'five', LOG_LEVELS: 'info' })).toEqual([
      ...unknown('AUTH_MODES', 'did you mean AUTH_MODE?'),
      ...unknown('LOG_LEVELS', 'did you mean LOG_LEVEL?'),
      'PORT must be a whole number from 0 to 65535',
    ]);
  });
});

describe('an unknown name in .env', () => {
  const inFile = (...names: string[]) => load(Object.fromEntries(names.map((name) => [name, 'x'])), names);

  test('is an error, also where it is near to none of ours, or empty', () => {
    expect(inFile('OIDC_REQUIRED_CLAIMS', 'DATABASE_URL', 'PORT_FILE')).toEqual([
      '.env sets OIDC_REQUIRED_CLAIMS, which is not a variable of the relay: did you mean OIDC_REQUIRED_CLAIM?',
      '.env sets DATABASE_URL, which is not a variable of the relay',
      '.env sets PORT_FILE, which is not a variable of the relay: PORT cannot be given as a file',
    ]);
    expect(load({ DATABASE_URL: '' }, ['DATABASE_URL'])).toHaveLength(1);
  });

  test('is not shown where it may be the second line of a secret', () => {
    expect(inFile('c2VjcmV0LXR3bw', 'Canary', 'CANARY')).toEqual([
      '.env holds a line that sets something which the relay does not know; quote values of several lines',
    ]);
  });

  test("is none of Docker Compose's", () => {
    expect(inFile('COMPOSE_PROJECT_NAME', 'COMPOSE_PROFILES')).toMatchObject({ demo: true });
    expect(inFile('COMPOSER')).toHaveLength(1);
  });
});

describe('what has a prefix of ours and is no variable of ours', () => {
  const risks = (environment: Environment) => risksOf(loadConfig(environment));

  test('stands in one risk together, and the demo says so too', () => {
    expect(risks({ SESSION_MANAGER: 'canary', REDIS_TLS_URL: 'canary', OIDC_GROUPS: 'canary' })).toEqual([
      'SESSION_MANAGER, REDIS_TLS_URL, OIDC_GROUPS: not variables of the relay, which does nothing with them; look whether one is misspelt',
    ]);
  });

  test('is nothing of Node.js, nothing empty and nothing that only begins like ours', () => {
    expect(
      risks({ NODE_OPTIONS: '', NODE_PATH: 'x', REDIS_X: '', LOGNAME: 'x', PORTS: 'x', 'LOG_\n': 'x' }),
    ).toEqual([]);
  });
});

describe('METRICS_PORT as Kubernetes sets it', () => {
  test.each(['tcp://10.96.12.7:9464', 'udp://10.96.12.7:9464', 'sctp://[fd00::7]:9464'])(
    '%s is ignored with a risk that says so',
    (METRICS_PORT) => {
      const config = loadConfig({ METRICS_PORT });
      expect(config.metricsPort).toBeUndefined();
      expect(risksOf(config)).toEqual([expect.stringMatching(/^METRICS_PORT is .*Kubernetes.*ignored/)]);
      expect(risksOf(config).join()).not.toContain('10.96');
    },
  );

  test('is nothing else', () => {
    expect(load({ METRICS_PORT: 'http://10.96.12.7' })).toEqual([
      'METRICS_PORT must be a whole number from 1 to 65535',
    ]);
  });
});

describe('a process', () => {
  afterEach(() => stopProcesses());

  test.each(Object.entries(PLATFORMS))('starts in %s', async (_where, environment) => {
    const relay = startProcess({ environment: { ...environment, PORT: '0' } });
    await relay.listening();
    expect(relay.stderr()).toBe('');
  });

  test('starts in the environment of this test', () => {
    const others = Object.fromEntries(Object.entries(process.env).filter(([name]) => !isVariable(name)));
    expect(load(others)).toMatchObject({ demo: true });
  });

  test('says at its start, and to --check-config, what it does not know', async () => {
    const environment = { ...serviceLinks('METRICS', 9464), PORT: '0' };
    const names = Object.keys(serviceLinks('METRICS', 9464)).filter((name) => name !== 'METRICS_PORT');
    const checked = startProcess({ args: ['--check-config'], environment });
    expect(await checked.exited).toEqual({ code: 0, signal: null });
    expect(checked.stdout().split('\n')).toEqual([
      'The configuration is good.',
      expect.stringMatching(/^Risk: METRICS_PORT /),
      `Risk: ${names.join(', ')}: not variables of the relay, which does nothing with them; look whether one is misspelt`,
      '',
    ]);
    const started = startProcess({ environment });
    await started.waitFor(/"level":"warn".*METRICS_SERVICE_HOST, /);
  });

  const FILE = `OIDC_REQUIRED_CLAIMS=groups:x\nc2VjcmV0LXR3bw==\nSESSION_SECRETS_FILE=\nLOG_LEVEL=warn\nCOMPOSE_FILE=x\nCHECK_PASSWORD=${CANARY.password}\n`;
  test.each([[[]], [['--check-config']], [['keys']], [['user', 'list']]])(
    'exits 78 and names what .env mistypes, but nothing that could be a secret: %j',
    async (args) => {
      const relay = startProcess({
        folder: freshFolder({ '.env': FILE }),
        args,
        environment: { RATE_LIMITS: '5' },
      });
      expect(await relay.exited).toEqual({ code: 78, signal: null });
      expect(relay.stdout()).toBe('');
      expect(relay.stderr().split('\n')).toEqual([
        'The configuration has 3 problem(s):',
        '  - .env sets OIDC_REQUIRED_CLAIMS, which is not a variable of the relay: did you mean OIDC_REQUIRED_CLAIM?',
        '  - .env holds a line that sets something which the relay does not know; quote values of several lines',
        '  - RATE_LIMITS is not a variable of the relay: did you mean RATE_LIMIT?',
        '',
      ]);
    },
  );

  test('reports what .env mistypes as a problem of the check', async () => {
    const folder = freshFolder({ '.env': 'RATE_LIMITS=5\n' });
    const relay = startProcess({ folder, args: ['check'] });
    expect(await relay.exited).toEqual({ code: 78, signal: null });
    expect(relay.stdout()).toContain('.env sets RATE_LIMITS, which is not a variable of the relay');
  });
});
