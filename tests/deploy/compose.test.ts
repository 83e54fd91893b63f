import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { readServiceArguments } from '../../src/commands/service-arguments.ts';
import { isVariable, secretVariables, VARIABLES } from '../../src/config/variables.ts';
import { redisGivenBlobs } from '../../src/guard/redis-given-blobs.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { longestShutdownMs } from '../harness/relay/longest-shutdown.ts';
import { freshFolder, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const read = (name: string) => readFileSync(join(ROOT, name), 'utf8');

interface Service {
  readonly environment?: Readonly<Record<string, string>>;
  readonly secrets?: readonly string[];
  readonly volumes?: readonly string[];
  readonly depends_on?: Readonly<Record<string, { condition: string; required?: boolean }>>;
  readonly profiles?: readonly string[];
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly build?: { readonly context: string; readonly dockerfile: string; readonly target?: string };
  readonly networks?: object;
  readonly image?: string;
  readonly ports?: readonly string[];
  readonly command?: readonly string[];
  readonly stop_grace_period?: string;
  readonly user?: string;
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
  readonly volumes?: Readonly<Record<string, unknown>>;
}

const compose = parse(read('docker-compose.yml'), { merge: true }) as Compose;
const services = Object.entries(compose.services);
const relays = services.filter(([name]) => name.startsWith('relay-'));
const environment = relays[0]?.[1].environment ?? {};
const nginx = read('deploy/nginx.conf');

/** The environment that Compose gives a relay, from the variables `given`. */
const environmentWith = (given: Readonly<Record<string, string>>) =>
  Object.fromEntries(
    Object.entries(environment).map(([name, text]) => [
      name,
      text.replace(
        /\$\{(\w+):-(.*?)\}/g,
        (_, variable: string, fallback: string) => given[variable] || fallback,
      ),
    ]),
  );

afterAll(() => stopProcesses());

describe('docker-compose.yml', () => {
  test.each([
    { profiles: [], names: ['nginx', 'relay-1', 'relay-2', 'redis'] },
    { profiles: ['demo'], names: ['nginx', 'relay-1', 'relay-2', 'redis', 'bot'] },
    { profiles: ['service'], names: ['nginx', 'relay-1', 'relay-2', 'redis', 'service'] },
  ])('has all services that others depend on, with profiles $profiles', ({ profiles, names }) => {
    const enabled = services.filter(
      ([, { profiles: own }]) => !own || own.some((one) => profiles.includes(one)),
    );
    expect(enabled.map(([name]) => name)).toEqual(names);
    for (const [, { depends_on = {} }] of enabled) {
      const needed = Object.entries(depends_on).filter(([, { required = true }]) => required);
      expect(names).toEqual(expect.arrayContaining(needed.map(([name]) => name)));
    }
  });

  test('starts the demo with the command that it and docs/deploy.md name, and the real thing without the profile', () => {
    const command = 'docker compose --profile demo up --build --wait';
    expect(read('docker-compose.yml')).toContain(command);
    expect(read('docs/deploy.md')).toMatch(new RegExp(`^${command}$`, 'm'));
    expect(environmentWith({})).toMatchObject({
      UPSTREAM_BASE_URL: 'http://bot:4000',
      BOTS: 'demo/*',
      OPERATIONS: VARIABLES.OPERATIONS.fallback,
      CHANNELS: 'scoped',
    });
    const real = {
      UPSTREAM_BASE_URL: 'https://bots.example.net',
      BOTS: 'acme/helper',
      OPERATIONS: 'message,chat,files',
      CHANNELS: 'shared',
    };
    expect(environmentWith(real)).toMatchObject(real);
  });

  test('runs the version of Redis that docs/deploy.md names as tested', () => {
    const [, tested] = /tested with version (\d+);/.exec(read('docs/deploy.md')) ?? [];
    expect(compose.services.redis?.image).toMatch(new RegExp(`^redis:${tested}\\.`));
  });

  test.each(services)('gives %s no more rights, memory and processes than it needs', (_name, service) => {
    expect(service).toMatchObject({
      ...{ read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] },
      logging: { driver: 'json-file', options: { 'max-size': '10m', 'max-file': '5' } },
      deploy: { resources: { limits: { memory: expect.stringMatching(/^\d+M$/), pids: 256 } } },
    });
    // The image of the relay has its own user and its own health check.
    const own = /^bot-relay(-service)?$/.test(service.image ?? '');
    expect(own || (service.user !== undefined && service.healthcheck !== undefined)).toBe(true);
    expect(own || /^[a-z]+:\d+\.\d+\.\d+-alpine$/.test(service.image ?? '')).toBe(true);
    for (const { condition } of Object.values(service.depends_on ?? {})) {
      expect(condition).toBe('service_healthy');
    }
  });

  test('runs two equal relays, whose metrics are served only to its containers', () => {
    const [first, second] = relays.map(([, { networks: _, ...rest }]: [string, Service]) => rest);
    expect(first).toEqual(second);
    expect(environment.METRICS_PORT).toBe('9090');
    expect(first).not.toHaveProperty('ports');
  });

  test('sets only variables that the relay knows, and no secret among them', () => {
    const names = services.flatMap(([, service]) => Object.keys(service.environment ?? {}));
    expect(names.filter((name) => !isVariable(name))).toEqual([]);
    // The address of this Redis has no password in it.
    const secrets = secretVariables().filter((name) => name !== 'REDIS_URL');
    expect(names.filter((name) => secrets.includes(name))).toEqual([]);
    for (const name of ['UPSTREAM_API_KEYS', 'SESSION_SECRETS', 'CHANNEL_SECRET']) {
      expect(environment).not.toHaveProperty(name);
      expect(environment).toHaveProperty(`${name}_FILE`);
    }
    expect(environment.TRUST_PROXY).toBe('1');
  });

  test('runs a bot service with a file, in the place of that of the demo, whose console this machine alone reaches', () => {
    const { service, bot } = compose.services;
    const { target } = service?.build ?? {};
    expect(read('deploy/Dockerfile')).toMatch(new RegExp(`^FROM \\w+ AS ${target}$`, 'm'));
    // Where the relays look for it: UPSTREAM_BASE_URL.
    expect(service?.networks).toMatchObject({ back: { aliases: ['bot'] } });
    expect(service?.ports).toEqual(['127.0.0.1:4001:4001']);
    const { SERVICE_DATA } = service?.environment ?? {};
    expect(service?.volumes).toEqual([`service-data:${dirname(SERVICE_DATA ?? '')}`]);
    const [program, ...args] = service?.command ?? [];
    expect([program, bot?.command]).toEqual(['bot-relay', service?.command]);
    expect(readServiceArguments(args.slice(1))).toMatchObject({ what: 'start' });
    for (const command of read('docker-compose.yml').match(
      /docker compose --profile service .*?(?= {2}|$)/gm,
    ) ?? [])
      expect(read('docs/deploy.md')).toMatch(new RegExp(`^${command}$`, 'm'));
  });

  test('runs a bot service that starts with what it is given, once it has a password, and is healthy', async () => {
    const { service } = compose.services;
    const folder = freshFolder({ bot_api_keys: `${CANARY.key}\n`, service_secret: CANARY.channelSecret });
    const here = (text: string) =>
      text
        .replace('/run/secrets/', `${folder}/`)
        .replace('/data/', `${folder}/`)
        .replace('0.0.0.0', '127.0.0.1');
    const given = Object.entries(service?.environment ?? {}).map(([name, text]) => [name, here(text)]);
    const environment = { ...Object.fromEntries(given), SERVICE_PORT: '0', SERVICE_CONSOLE_PORT: '0' };
    const args = (service?.command ?? []).slice(1).map(here);
    // As in the container, where the console listens on all addresses.
    const open = { ...environment, SERVICE_CONSOLE_HOST: '0.0.0.0' };
    const refused = startProcess({ args, folder, environment: open });
    expect(await refused.exited).toEqual({ code: 78, signal: null });
    expect(refused.stderr()).toMatch(
      /^SERVICE_CONSOLE_HOST is not a loopback address, .* bot-relay service password/,
    );
    const input = `${CANARY.password}\n`;
    const set = startProcess({ args: ['service', 'password'], folder, environment: open, input });
    expect(await set.exited).toEqual({ code: 0, signal: null });
    const running = startProcess({ args, folder, environment: open });
    const port = await running.listening();
    const health = (service?.healthcheck?.test.at(-1) ?? '').replace(':4000', `:${port}`);
    expect(spawnSync(process.execPath, ['-e', health]).status).toBe(0);
  });

  test('leaves a relay enough time to stop', () => {
    const { SHUTDOWN_DELAY_MS, SHUTDOWN_GRACE_MS } = environment;
    const needed = longestShutdownMs({
      delayMs: Number(SHUTDOWN_DELAY_MS),
      graceMs: Number(SHUTDOWN_GRACE_MS),
    });
    for (const name of ['relay-1', 'nginx']) {
      const seconds = /^(\d+)s$/.exec(compose.services[name]?.stop_grace_period ?? '')?.[1];
      expect(Number(seconds) * 1000).toBeGreaterThan(needed);
    }
    // nginx uses an answer of /readyz for less than 2 s.
    expect(nginx).toContain('proxy_cache_valid any 1s;');
    expect(Number(SHUTDOWN_DELAY_MS)).toBeGreaterThan(2 * 2_000);
  });

  test('and deploy/nginx.conf use the same names, ports and files', () => {
    for (const [name] of relays) expect(nginx).toContain(`server ${name}:3000 max_fails=0;`);
    for (const port of compose.services.nginx?.ports ?? []) {
      expect(nginx).toMatch(new RegExp(`listen ${port.split(':')[1]}\\b`));
    }
    const named = [...nginx.matchAll(/\/run\/secrets\/(\w+)/g)].map(([, name]) => name);
    expect(named.sort()).toEqual([...(compose.services.nginx?.secrets ?? [])].sort());
  });

  test('finds every file that it mounts after deploy/make-secrets.sh, and the relay accepts them', async () => {
    const folder = freshFolder();
    for (const name of ['bin', 'dist', 'node_modules']) symlinkSync(join(ROOT, name), join(folder, name));
    cpSync(join(ROOT, 'package.json'), join(folder, 'package.json'));
    cpSync(join(ROOT, 'deploy'), join(folder, 'deploy'), {
      recursive: true,
      filter: (path) => !path.endsWith('secrets'),
    });
    expect(read('docker-compose.yml')).toContain('npm install && deploy/make-secrets.sh ');
    const env = { ...process.env, npm_config_cache: freshFolder() };
    const said = execFileSync('deploy/make-secrets.sh', { cwd: folder, env, encoding: 'utf8' });
    expect(said).toMatch(/^Sign in as demo with the password [0-9a-f]{24}\n$/);
    expect(execFileSync('deploy/make-secrets.sh', { cwd: folder, encoding: 'utf8' })).toBe('');

    expect(statSync(join(folder, 'deploy/secrets')).mode & 0o777).toBe(0o700);
    for (const { file } of Object.values(compose.secrets)) {
      expect(statSync(join(folder, file)).mode & 0o777).toBe(0o644);
    }
    for (const [, { volumes = [], secrets = [], build }] of services) {
      for (const volume of volumes) {
        const [source = ''] = volume.split(':');
        const isNamed = Object.hasOwn(compose.volumes ?? {}, source);
        expect(isNamed || existsSync(join(folder, source))).toBe(true);
      }
      for (const secret of secrets) expect(Object.keys(compose.secrets)).toContain(secret);
      if (build) expect(existsSync(join(folder, build.context, build.dockerfile))).toBe(true);
    }

    const here = Object.entries(environmentWith({})).map(([name, value]) => [
      name,
      value.replace('/run/secrets/', join(folder, 'deploy/secrets/')),
    ]);
    const check = startProcess({
      args: ['--check-config'],
      environment: { NODE_ENV: 'production', ...Object.fromEntries(here) },
    });
    // It ends by itself, so it does not listen.
    expect(await check.exited).toEqual({ code: 0, signal: null });
  }, 60_000);
});

describeWithRedis('Redis with the arguments of docker-compose.yml', () => {
  test('keeps what it holds when it is killed and when it is full', async () => {
    const { command = [], volumes = [] } = compose.services.redis ?? {};
    expect(command[0]).toBe('redis-server');
    // The image works in /data, which belongs to its user.
    expect(volumes).toEqual(['redis-data:/data']);
    expect(Object.keys(compose.volumes ?? {})).toEqual(['redis-data', 'service-data']);
    const server = await startRedis(...command.slice(1), '--dir', freshFolder());
    try {
      const before = await connected(server.url);
      await redisGivenBlobs(before).remember('c', ['a']);
      before.close();
      await server.stop();
      await server.start();
      const after = await connected(server.url);
      const blobs = redisGivenBlobs(after);
      expect(await blobs.areGiven('c', ['a'])).toBe(true);
      await server.command('CONFIG', 'SET', 'maxmemory', '1');
      await expect(blobs.remember('d', ['b'])).rejects.toMatchObject({ cause: 'OOM' });
      expect(await blobs.areGiven('c', ['a'])).toBe(true);
      after.close();
    } finally {
      stopRedis();
    }
  });
});
