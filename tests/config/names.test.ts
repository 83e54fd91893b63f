import { afterAll, describe, expect, test } from '@jest/globals';
import { loadConfig } from '../../src/config/config.ts';
import type { Environment } from '../../src/config/environment.ts';
import { risksOf } from '../../src/config/risks.ts';
import { isModelKey } from '../../src/config/service-model.ts';
import { isVariable, secretVariables, VARIABLES } from '../../src/config/variables.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { problemsOf } from '../harness/relay/environments.ts';
import { freshFolder, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';

const unknown = (name: string, says: string) => [`${name} is not a variable of the relay: ${says}`];

/** Keys that are exported for other programs, and what stands beside them. */
const AI_TOOLS = parse(`
  OPENAI_API_KEY=sk-canary OPENAI_API_KEY_2=sk-canary OPENAI_API_KEYS=a,b OPENAI_BASE_URL=https://canary.example.com
  ANTHROPIC_API_KEY=canary ANTHROPIC_AUTH_TOKEN=canary AZURE_CLIENT_ID=x AZURE_OPENAI_API_KEY=canary
  MISTRAL_API_KEY=x GOOGLE_APPLICATION_CREDENTIALS=/canary.json GOOGLE_GENERATIVE_AI_API_KEY=x`);

/** Variables of other programs, as they are found on real machines. */
const PLATFORMS: Record<string, Record<string, string>> = {
  'a Kubernetes pod beside services named redis, bots, metrics and nearly so': {
    ...parse('HOSTNAME=relay-6d4b KUBERNETES_PORT=tcp://10.96.0.1:443 KUBERNETES_SERVICE_HOST=10.96.0.1'),
    ...{ ...serviceLinks('REDIS', 6379), ...serviceLinks('BOTS', 80), ...serviceLinks('METRICS', 9464) },
    ...{ ...serviceLinks('METRIC', 80), ...serviceLinks('METRICS_2', 80), ...serviceLinks('SERVICE', 80) },
  },
  "Node.js's image": parse(`
    NODE_VERSION=24.21.0 YARN_VERSION=1.22.22 NODE_OPTIONS=--max-old-space-size=512 NODE_EXTRA_CA_CERTS=/dev/null
    NODE_PATH=/usr/lib/node_modules NODE_NO_WARNINGS=1 NODE_NAME=worker-3 NODE_IP=10.0.0.3 NODE_HOME=/opt/node`),
  'a desktop': parse(`
    USER=ada USERNAME=ada LOGNAME=ada HOSTTYPE=x86_64 HOST_TYPE=x86_64 SESSION_MANAGER=local/laptop:@/tmp/.ICE-unix/1
    XDG_SESSION_ID=2 DESKTOP_SESSION=gnome LOG_FILE=/var/log/x PS1=$ _=/usr/bin/node`),
  'a systemd service': parse(`
    INVOCATION_ID=3b1f9f6c7a0e4d6f8a4f6f1d7c1e2a3b JOURNAL_STREAM=9:12345 SYSTEMD_EXEC_PID=814
    NOTIFY_SOCKET=/run/systemd/notify LOGS_DIRECTORY=/var/log/relay WATCHDOG_USEC=1000000`),
  'a Heroku dyno': parse(`
    DYNO=web.1 DATABASE_URL=postgres://db REDIS_TLS_URL=rediss://:canary@host:6380 WEB_CONCURRENCY=2 WEB_MEMORY=512
    REDISCLOUD_URL=redis://:canary@host:6379 BASE_URL=https://x.example.com CLIENT_ID=x USERS_DB=x`),
  'a machine with other programs for models': AI_TOOLS,
  'a GitHub runner': parse(`
    CI=true GITHUB_ACTIONS=true GITHUB_BASE_REF=main RUNNER_OS=Linux BASH_ENV=
    ACTIONS_RUNNER_ACTION_ARCHIVE_CACHE=/opt/cache AGENT_TOOLSDIRECTORY=/opt/hostedtoolcache`),
};

function parse(text: string): Record<string, string> {
  const pairs = text.trim().split(/\s+/);
  return Object.fromEntries(pairs.map((one) => [one.split('=')[0], one.slice(one.indexOf('=') + 1)]));
}

/** The variables that Kubernetes sets in every container for a service of its namespace. */
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

describe('a misspelt variable in the environment', () => {
  test.each(
    Object.entries(
      parse(`
        OIDC_REQUIRED_CLAIMS=OIDC_REQUIRED_CLAIM OIDC_REQUIERD_CLAIM=OIDC_REQUIRED_CLAIM ODIC_ISSUER=OIDC_ISSUER
        UPSTREAM_API_KEY=UPSTREAM_API_KEYS SESSION_SECRET_FILE=SESSION_SECRETS_FILE SESSIONSECRETS=SESSION_SECRETS
        MAX_EXECUTON_MS=MAX_EXECUTION_MS USER_FILE=USERS_FILE METRIC_PORT=METRICS_PORT NODE_EMV=NODE_ENV
        REDIS_URI=REDIS_URL`),
    ),
  )('%s is an error that names %s', (name, right) => {
    expect(problemsOf({ [name]: 'canary' })).toEqual(unknown(name, `did you mean ${right}?`));
    // Also if the right one is set as well.
    expect(problemsOf({ LOG_LEVEL: 'info', [name]: 'canary' })).toHaveLength(1);
  });

  test('is found wherever one or two letters are added, missing or changed', () => {
    const files = secretVariables().map((name) => `${name}_FILE`);
    // Other programs have variables of names like those of the providers' keys.
    const own = [...Object.keys(VARIABLES), ...files].filter(
      (name) => !isModelKey(name.replace(/_FILE$/, '')),
    );
    for (const name of own.filter(({ length }) => length >= 6)) {
      const wrong = [...name].flatMap((_letter, at) => {
        const [before, after] = [name.slice(0, at), name.slice(at)];
        const changed = [`${before}Q${after.slice(1)}`, `${before}QJ${after.slice(2)}`];
        return [before + after.slice(1), before + after.slice(2), `${before}Q${after}`, ...changed];
      });
      const names = [...new Set(wrong)].filter((one) => !isVariable(one));
      expect(names.length).toBeGreaterThan(name.length);
      expect(problemsOf(Object.fromEntries(names.map((one) => [one, 'x'])))).toEqual(
        names.map((one) => expect.stringMatching(`^${one} is not .*: did you mean`)),
      );
    }
  });

  test.each(['OIDC_REQUIRED_CLAIMANTS', 'POST', 'PORTS', 'HOSTS', 'BOT', 'MY_OIDC_REQUIRED_CLAIM'])(
    'is not %s, which may belong to another program',
    (name) => {
      expect(problemsOf({ [name]: 'x' })).toEqual([]);
    },
  );

  test.each(['PORT', 'HOST', 'RATE_LIMIT', 'BOTS_FILE'])(
    'is also %s_FILE, since it takes no file',
    (name) => {
      expect(problemsOf({ [`${name}_FILE`]: 'canary' })).toEqual(
        unknown(`${name}_FILE`, `${name} cannot be given as a file`),
      );
    },
  );

  test('is no error if it is empty', () => {
    expect(problemsOf({ OIDC_REQUIRED_CLAIMS: '', PORT_FILE: '' })).toEqual([]);
  });

  test('is reported together with other problems', () => {
    expect(problemsOf({ AUTH_MODES: 'oidc', PORT: 'five', LOG_LEVELS: 'info' })).toEqual([
      ...unknown('AUTH_MODES', 'did you mean AUTH_MODE?'),
      ...unknown('LOG_LEVELS', 'did you mean LOG_LEVEL?'),
      'PORT must be a whole number from 0 to 65535',
    ]);
  });
});

describe('an unknown name in .env', () => {
  const inFile = (...names: string[]) =>
    problemsOf(Object.fromEntries(names.map((name) => [name, 'x'])), names);

  test('is an error, also if it is close to no variable, or empty', () => {
    expect(inFile('OIDC_REQUIRED_CLAIMS', 'DATABASE_URL', 'PORT_FILE')).toEqual([
      '.env sets OIDC_REQUIRED_CLAIMS, which is not a variable of the relay: did you mean OIDC_REQUIRED_CLAIM?',
      '.env sets DATABASE_URL, which is not a variable of the relay',
      '.env sets PORT_FILE, which is not a variable of the relay: PORT cannot be given as a file',
    ]);
    expect(problemsOf({ DATABASE_URL: '' }, ['DATABASE_URL'])).toHaveLength(1);
  });

  test('is not shown if it may be the second line of a secret', () => {
    expect(inFile('c2VjcmV0LXR3bw', 'Canary', 'CANARY')).toEqual([
      '.env holds a line that sets something which the relay does not know; quote values of several lines',
    ]);
  });

  test('is no error if it belongs to Docker Compose', () => {
    expect(inFile('COMPOSE_PROJECT_NAME', 'COMPOSE_PROFILES')).toEqual([]);
    expect(inFile('COMPOSER')).toHaveLength(1);
  });
});

describe('an unknown name with a prefix of the relay', () => {
  const risks = (environment: Environment) => risksOf(loadConfig(environment));

  test('is in one risk with the others, also in the demo', () => {
    expect(risks({ SESSION_MANAGER: 'canary', REDIS_TLS_URL: 'canary', OIDC_GROUPS: 'canary' })).toEqual([
      'SESSION_MANAGER, REDIS_TLS_URL, OIDC_GROUPS: not variables of the relay, which does nothing with them; look whether one is misspelt',
    ]);
  });

  test('is no risk if it belongs to Node.js, is empty or has only a similar prefix', () => {
    expect(
      risks({ NODE_OPTIONS: '', NODE_PATH: 'x', REDIS_X: '', LOGNAME: 'x', PORTS: 'x', 'LOG_\n': 'x' }),
    ).toEqual([]);
  });
});

describe('keys of providers that are exported for other programs', () => {
  test('are no risk, and are not read', () => {
    const config = loadConfig(AI_TOOLS);
    expect(risksOf(config)).toEqual([]);
    expect(config.service.model).toBeUndefined();
    expect(config.bots).toEqual(['demo/echo']);
  });
});

describe('a variable of the bot service', () => {
  const set = { SERVICE_PORT: '4000', SERVICE_CONSOLE_HOST: '127.0.0.1', SERVICE_KEEP_DAYS: '3' };

  test('has no effect in a relay that talks to another service, which is a risk', () => {
    const upstream = { UPSTREAM_BASE_URL: 'http://localhost:1', UPSTREAM_API_KEYS: 'key', BOTS: 'a/b' };
    expect(risksOf(loadConfig({ ...upstream, ...set }))[0]).toBe(
      'SERVICE_PORT, SERVICE_CONSOLE_HOST, SERVICE_KEEP_DAYS: for the bot service of this project, but UPSTREAM_BASE_URL names another one: they do nothing here',
    );
  });

  test('is a risk in the demo if it only says where the service would listen alone', () => {
    expect(risksOf(loadConfig(set))).toEqual([
      'SERVICE_PORT: for bot-relay service alone: the service of the demo listens on a free port',
      'SERVICE_CONSOLE_HOST: SERVICE_CONSOLE_PORT is not set, so there is no console',
    ]);
    expect(risksOf(loadConfig({ SERVICE_CONSOLE_HOST: '::1', SERVICE_CONSOLE_PORT: '0' }))).toEqual([]);
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

  test('has no other form: another value is refused', () => {
    expect(problemsOf({ METRICS_PORT: 'http://10.96.12.7' })).toEqual([
      'METRICS_PORT must be a whole number from 1 to 65535',
    ]);
  });
});

describe('the environment of another program', () => {
  test.each(Object.entries(PLATFORMS))('is no problem: %s', (_where, environment) => {
    expect(problemsOf(environment)).toEqual([]);
  });

  test('is no problem: that of this test', () => {
    const others = Object.fromEntries(Object.entries(process.env).filter(([name]) => !isVariable(name)));
    expect(problemsOf(others)).toEqual([]);
  });
});

async function startsAnywhere(): Promise<void> {
  const relay = startProcess({
    environment: { ...Object.assign({}, ...Object.values(PLATFORMS)), PORT: '0' },
  });
  await relay.listening();
  expect(relay.stderr()).toBe('');
  await relay.waitFor(/"level":"warn".*METRICS_SERVICE_HOST, /);
}

async function reportsUnknownNames(): Promise<void> {
  const environment = { ...serviceLinks('METRICS', 9464), PORT: '0' };
  const names = Object.keys(serviceLinks('METRICS', 9464)).filter((name) => name !== 'METRICS_PORT');
  const { stdout, ...others } = await runCommand({ args: ['--check-config'], environment });
  expect(others).toEqual({ code: 0, stderr: '' });
  expect(stdout.split('\n')).toEqual([
    'The configuration is good.',
    expect.stringMatching(/^Risk: METRICS_PORT /),
    `Risk: ${names.join(', ')}: not variables of the relay, which does nothing with them; look whether one is misspelt`,
    '',
  ]);
}

const FILE = `OIDC_REQUIRED_CLAIMS=groups:x\nc2VjcmV0LXR3bw==\nSESSION_SECRETS_FILE=\nLOG_LEVEL=warn\nCOMPOSE_FILE=x\nCHECK_PASSWORD=${CANARY.password}\nCHECK_OTHER_PASSWORD=${CANARY.password}\n`;

async function namesWhatIsMistyped(args: string[]): Promise<void> {
  const folder = freshFolder({ '.env': FILE });
  const { stderr, ...others } = await runCommand({ folder, args, environment: { RATE_LIMITS: '5' } });
  expect(others).toEqual({ code: 78, stdout: '' });
  expect(stderr.split('\n')).toEqual([
    'The configuration has 3 problem(s):',
    '  - .env sets OIDC_REQUIRED_CLAIMS, which is not a variable of the relay: did you mean OIDC_REQUIRED_CLAIM?',
    '  - .env holds a line that sets something which the relay does not know; quote values of several lines',
    '  - RATE_LIMITS is not a variable of the relay: did you mean RATE_LIMIT?',
    '',
  ]);
}

async function isProblemOfTheCheck(): Promise<void> {
  const folder = freshFolder({ '.env': 'RATE_LIMITS=5\n' });
  const { code, stdout } = await runCommand({ folder, args: ['check'] });
  expect(code).toBe(78);
  expect(stdout).toContain('.env sets RATE_LIMITS, which is not a variable of the relay');
}

describe('a process', () => {
  afterAll(async () => {
    await stopCommands();
    await stopProcesses();
  });

  testSideBySide(
    [
      ['starts with the variables of many other programs, and reports their names', startsAnywhere],
      ['reports unknown names with --check-config', reportsUnknownNames],
      ...[[], ['--check-config'], ['keys'], ['user', 'list']].map((args): [string, () => Promise<void>] => [
        `exits 78 and names what .env mistypes, but nothing that could be a secret: ${JSON.stringify(args)}`,
        () => namesWhatIsMistyped(args),
      ]),
      ['reports a misspelt name in .env as a problem of the check', isProblemOfTheCheck],
    ],
    3,
  );
});
