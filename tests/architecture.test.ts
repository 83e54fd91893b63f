import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import {
  type Import,
  member,
  packageOf,
  ROOT,
  readSources,
  type Source,
} from './harness/documents/sources.ts';

/** The files that nearly every room may import. */
const BASE = 'errors logger secret';
/** What every stage may import. */
const SHARED = `bots config:types http storage ${BASE}`;
/** `SHARED` without Redis. */
const SHARED_BY_RELAY = `bots config:types http ${BASE}`;
/** What each entry of the client's package may import. */
const CLIENT = 'client/channel client/session client/transport';
/** The stages, in the order in which a request meets them. */
const STAGES = 'arrive authenticate guard runs pace relay watch';

/**
 * The rooms, and what each may import. `a` includes `a/b`; `a:types` allows only its types. A folder without a row
 * fails. `docs/architecture.md` has the same table, with the purpose of each room.
 */
const ROOMS: Readonly<Record<string, string>> = {
  main: 'commands',
  app: 'routes arrive guard watch',
  errors: '',
  logger: '',
  secret: '',
  routes: `${STAGES} page bots config:types http errors logger`,

  arrive: SHARED,
  'authenticate/sessions': SHARED,
  'authenticate/password': `authenticate/sessions ${SHARED}`,
  'authenticate/oidc': `authenticate/sessions ${SHARED}`,
  guard: SHARED,
  runs: `relay/message relay/upstream ${SHARED}`,
  pace: `relay/message:types ${SHARED}`,
  'relay/message': `relay/upstream ${SHARED_BY_RELAY}`,
  'relay/operations': `relay/upstream ${SHARED_BY_RELAY}`,
  'relay/upstream': SHARED_BY_RELAY,
  watch: SHARED,

  bots: BASE,
  config: `bots http storage ${BASE}`,
  http: BASE,
  storage: BASE,
  process: `app routes ${STAGES} bots config storage page service ${BASE}`,

  check: `authenticate guard pace relay watch bots config http storage ${BASE}`,
  commands: `process check service authenticate/password authenticate/sessions guard pace relay/upstream watch config storage ${BASE}`,
  'client/transport': '',
  'client/session': 'client/transport',
  'client/channel': 'client/session client/transport',
  'client/ai-sdk': CLIENT,
  'client/element': CLIENT,
  client: `${CLIENT} client/element`,
  'service/brains': 'service/settings:types',
  'service/models': 'service/settings:types http',
  'service/knowledge': 'service/brains:types service/settings',
  'service/settings': 'secret',
  'service/store': 'service/settings',
  'service/wire': 'service/store service/brains:types',
  'service/sandbox': 'service/store service/wire',
  'service/console':
    'service/settings service/wire service/knowledge service/models:types service/brains:types authenticate/sessions authenticate/password guard http errors secret',
  service: 'service secret',
  page: `config:types http ${BASE}`,
};

/** The rooms that may load a library. Outside `relay/`, its types may be used everywhere. */
const LIBRARIES: Readonly<Record<string, string>> = {
  '@ai-sdk/anthropic': 'service/models',
  '@ai-sdk/azure': 'service/models',
  '@ai-sdk/google': 'service/models',
  '@ai-sdk/mistral': 'service/models',
  '@ai-sdk/openai': 'service/models',
  '@ai-sdk/openai-compatible': 'service/models',
  '@fastify/busboy': 'relay/operations',
  '@redis/client': 'storage',
  ai: 'service/models service/brains',
  cookie: 'authenticate/sessions authenticate/oidc',
  dotenv: 'config',
  'eventsource-parser': 'check client/transport',
  express: 'app routes service/console',
  'express-rate-limit': 'pace http',
  helmet: 'arrive service/console',
  'http-proxy-middleware': 'relay/operations',
  jose: 'authenticate/oidc watch',
  marked: 'client/element',
  katex: 'client/element',
  lowlight: 'client/element',
  'openid-client': 'authenticate/oidc',
  pino: 'logger',
  'prom-client': 'watch',
  'rate-limit-redis': 'pace',
  react: 'client',
  undici: 'relay/upstream service/models',
  zod: 'authenticate bots check config watch',
};

/** The files that open a secret, and which secret it is. */
const SECRETS_OPENED = {
  'arrive/access-log.ts': 'SESSION_SECRETS, for the hashes of addresses in the log',
  'authenticate/oidc/provider-metadata.ts': 'OIDC_CLIENT_SECRET, for the identity provider',
  'authenticate/oidc/sign-in-flows.ts': 'SESSION_SECRETS, for sign-ins that are under way',
  'authenticate/sessions/seal.ts': 'SESSION_SECRETS, for what is stored of sessions',
  'authenticate/sessions/session-cookie.ts': 'SESSION_SECRETS, for the cookies of sessions',
  'check/http-client.ts': 'the passwords of the users that a check signs in',
  'commands/service-keys.ts': 'a new API key of the bot service, to print it once',
  'config/service-settings.ts': 'SERVICE_SECRET, for the key of the demo',
  'guard/scoped-channels.ts': 'CHANNEL_SECRET, for the ids of conversations',
  'process/demo.ts': 'API keys, for the embedded bot service that takes them',
  'relay/upstream/upstream-request.ts': 'API keys, for the bot service',
  'service/console/key-pages.ts': 'API keys of the bot service, where an administrator copies one',
  'service/models/language-model.ts': 'the keys of providers, for their models',
  'service/settings/model-settings.ts': 'keys of providers, to check them and show their last characters',
  'service/settings/sealed.ts': 'SERVICE_SECRET and the keys of the bot service, to seal them',
  'storage/redis-address.ts': 'REDIS_URL, for what may be said of it',
  'storage/redis-sentinel.ts': 'REDIS_SENTINEL_PASSWORD, for the sentinels',
  'storage/redis-settings.ts':
    'REDIS_URL and REDIS_TLS_KEY, for Redis, and to see that its certificate is of this key',
  'watch/probe-tokens.ts': 'SESSION_SECRETS, for the probes of a check',
};

/** The members of `process` that concern signals and the exit. */
const SIGNALS_AND_EXITS =
  /^(on|once|off|emit|addListener|prependListener|exit|exitCode|kill|abort|send|disconnect)$/;

const sources = readSources('src');
const paths = new Set(sources.map(({ path }) => path));

/** The room of a file: its row in the table, or its folder if there is no row. */
function roomOf(path: string): string {
  const rows = Object.keys(ROOMS).filter((room) => path === `${room}.ts` || path.startsWith(`${room}/`));
  return rows[0] ?? dirname(path);
}

const isIn = (room: string, names: string) =>
  names.split(' ').some((name) => room === name || room.startsWith(`${name}/`));

function mayImport(room: string, { target, typesOnly }: Import): boolean {
  const names = (ROOMS[room] ?? '').split(' ').filter((name) => typesOnly || !name.endsWith(':types'));
  return roomOf(target) === room || isIn(roomOf(target), names.join(' ').replaceAll(':types', ''));
}

/** Imports between files of the project. */
const imports = sources.flatMap(({ path, imports }) =>
  imports.filter(({ target }) => paths.has(target)).map((one) => ({ path, room: roomOf(path), ...one })),
);

const sortedOnce = (texts: readonly string[]) => [...new Set(texts)].sort();
const pathsWhere = (holds: (source: Source) => boolean) => sources.filter(holds).map(({ path }) => path);
/** The members of `process` that a file uses. */
const ofProcess = ({ nodes }: Source) =>
  nodes
    .filter(({ type }) => type === 'MemberExpression')
    .filter((node) => member(node, 'object')?.value === 'process')
    .map((node) => String(member(node, 'property')?.value));
/** The methods that a file calls, with those arguments that are strings. */
const methodCalls = ({ nodes }: Source) =>
  nodes
    .filter((node) => member(node, 'callee')?.type === 'MemberExpression')
    .map((node) => {
      const values = (node.arguments as { expression: { value?: unknown } }[]).map(({ expression }) =>
        String(expression.value),
      );
      return `${member(member(node, 'callee'), 'property')?.value}(${values.join()})`;
    });

/** All modules that are loaded together with a file. */
function loadedWith(path: string): Set<string> {
  const loaded = new Set([path]);
  for (const one of loaded) {
    const { imports = [] } = sources.find(({ path }) => path === one) ?? {};
    for (const { target, typesOnly, late } of imports) if (!typesOnly && !late) loaded.add(target);
  }
  return loaded;
}

/** The nodes that lie on a cycle of `edges`. */
function onCircles(edges: readonly (readonly [string, string])[]): string[] {
  const next = new Map<string, Set<string>>();
  for (const [from, to] of edges) next.set(from, (next.get(from) ?? new Set()).add(to));
  const reaches = (start: string) => {
    const met = new Set<string>();
    for (const ahead = [start]; ahead.length > 0; ) {
      for (const to of next.get(ahead.pop() as string) ?? []) {
        if (!met.has(to)) ahead.push(to);
        met.add(to);
      }
    }
    return met.has(start);
  };
  return [...next.keys()].filter(reaches).sort();
}

describe('the reading of the sources', () => {
  test('finds files, and what they import and how', () => {
    expect(sources.length).toBeGreaterThan(100);
    const of = (path: string) => sources.find((source) => source.path === path)?.imports;
    expect(of('arrive/problem-response.ts')).toEqual(
      expect.arrayContaining([
        { target: 'express', typesOnly: true, late: false },
        { target: 'errors.ts', typesOnly: false, late: false },
        { target: 'logger.ts', typesOnly: true, late: false },
      ]),
    );
    expect(of('main.ts')).toContainEqual({ target: 'commands/run-command.ts', typesOnly: false, late: true });
    const local = sources.flatMap((source) => source.imports).filter(({ target }) => target.endsWith('.ts'));
    expect(local.filter(({ target }) => !paths.has(target))).toEqual([]);
  });
});

describe('a room', () => {
  test('imports only what the table allows', () => {
    const found = imports
      .filter(({ room, ...one }) => !mayImport(room, one))
      .map(({ path, target }) => `${roomOf(path)} → ${roomOf(target)}`);
    expect(sortedOnce(found)).toEqual([]);
  });

  test('has a row in the table, and every row has a room', () => {
    const rooms = sortedOnce(sources.map(({ path }) => roomOf(path)));
    expect(rooms).toEqual(Object.keys(ROOMS).sort());
  });

  test('is in no cycle of imports, nor is any file', () => {
    const between = imports.map(({ room, target }) => [room, roomOf(target)] as const);
    expect(onCircles(between.filter(([from, to]) => from !== to))).toEqual([]);
    const files = imports.map(({ path, target }) => [path, target] as const);
    expect(onCircles(files)).toEqual([]);
  });

  test('is every folder: only files that all rooms share are directly in src/', () => {
    const loose = pathsWhere(({ path }) => !path.includes('/'));
    expect(loose).toEqual(['app.ts', 'errors.ts', 'logger.ts', 'main.ts', 'secret.ts']);
  });

  test('loads a library only if the list allows it', () => {
    const found = sources.flatMap(({ path, imports }) =>
      imports
        .filter(
          ({ target, typesOnly }) => !typesOnly && !target.endsWith('.ts') && !target.startsWith('node:'),
        )
        .map(({ target }) => packageOf(target))
        .filter((name) => !isIn(roomOf(path), LIBRARIES[name] ?? ''))
        .map((name) => `${roomOf(path)} → ${name}`),
    );
    expect(sortedOnce(found)).toEqual([]);
  });

  test('of the relay loads no Express, no session and no Redis', () => {
    const barred = /^(express|express-session|redis|@redis\/client|connect-redis|rate-limit-redis|cookie)$/;
    const relay = sources.filter(({ path }) => path.startsWith('relay/'));
    const named = relay.flatMap(({ imports }) => imports.map(({ target }) => target));
    expect(named.filter((target) => barred.test(target))).toEqual([]);
    // Also not through another room.
    const loaded = relay.flatMap(({ path }) => [...loadedWith(path)]);
    expect(loaded).toContain('undici');
    expect(loaded.filter((target) => barred.test(target))).toEqual([]);
  });
});

describe('only one place', () => {
  test('reads the environment: config/environment.ts', () => {
    const found = pathsWhere((source) => ofProcess(source).includes('env'));
    expect(found).toEqual(['config/environment.ts']);
  });

  test('takes signals and exits: process/, and main.ts where Node.js is too old to load it', () => {
    const users = sources.filter((source) => ofProcess(source).some((name) => SIGNALS_AND_EXITS.test(name)));
    const outside = users.map(({ path }) => path).filter((path) => !path.startsWith('process/'));
    expect(outside).toEqual(['main.ts']);
    const main = sources.filter(({ path }) => path === 'main.ts').flatMap(ofProcess);
    expect(new Set(main.filter((name) => SIGNALS_AND_EXITS.test(name)))).toEqual(new Set(['exitCode']));
  });

  test('has the global `process`: nothing else gives access to it', () => {
    expect(
      pathsWhere(({ imports }) => imports.some(({ target }) => /^(node:)?process$/.test(target))),
    ).toEqual([]);
    const named = ({ nodes }: Source, name: string) =>
      nodes.filter(({ type, value }) => type === 'Identifier' && value === name).length -
      nodes.filter((node) => member(node, 'object') && member(node, 'property')?.value === name).length;
    // Only `process.name` is allowed: not `process[name]`, `const { env } = process` or `of(process)`.
    const hidden = (source: Source) =>
      named(source, 'globalThis') > 0 ||
      ofProcess(source).includes('undefined') ||
      named(source, 'process') > ofProcess(source).length;
    // The AI SDK has a setting that is a global.
    expect(pathsWhere((source) => !source.path.startsWith('client/') && hidden(source))).toEqual([
      'service/models/packages.ts',
    ]);
  });

  test('opens each kind of secret, and relay/upstream those of the bot service', () => {
    expect(pathsWhere((source) => methodCalls(source).includes('open()'))).toEqual(
      Object.keys(SECRETS_OPENED),
    );
  });
});

describe('what is loaded', () => {
  test('by main.ts is nothing that an older Node.js could fail to load', () => {
    expect([...loadedWith('main.ts')]).toEqual(['main.ts', 'node:fs']);
  });

  test('by an instance is neither the bot service nor a command', () => {
    const loaded = [...loadedWith('process/serve.ts'), ...loadedWith('process/instance.ts')];
    expect(loaded).toEqual(expect.arrayContaining(['app.ts', 'express', 'relay/upstream/send.ts']));
    const late = /^(service|page|check|commands)\/|^process\/demo/;
    expect(loaded.filter((target) => late.test(target))).toEqual([]);
  });
});

// The linter holds the other rules of style: biome.json.

test('an exported function has a docstring', () => {
  const found = sources.flatMap(({ path, text }) =>
    [...text.matchAll(/(.*)\nexport (?:async )?function\*? (\w+)/g)]
      .filter(([, before = '']) => !before.endsWith('*/'))
      .map(([, , name]) => `${path}: ${name}`),
  );
  expect(found).toEqual([]);
});

test('a type is never cast through unknown', () => {
  const found = sources.filter(({ nodes }) =>
    nodes.some(
      (node) => node.type === 'TsAsExpression' && member(node, 'expression')?.type === 'TsAsExpression',
    ),
  );
  expect(found.map(({ path }) => path)).toEqual([]);
});

describe('docs/architecture.md', () => {
  /** The words in its table that stand for several rooms. */
  const WORDS: Readonly<Record<string, string>> = {
    base: BASE,
    channels: CLIENT,
    shared: SHARED,
    'shared without `storage`': SHARED_BY_RELAY,
  };

  test('has the same table of rooms', () => {
    const text = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8');
    const rows = [...text.matchAll(/^\| `([^`]+)` \| ([^|]+) \| ([^|]*) \|$/gm)];
    const listed = rows.map(([, room = '', , cell = '']) => [
      room.replace(/\/$|\.ts$/, ''),
      cell
        .split(/, /)
        .map(
          (name) =>
            WORDS[name] ??
            name
              .replace(/`/g, '')
              .replace(/ \(types\)/, ':types')
              .replace(/\/$/, ''),
        )
        .join(' ')
        .replace('nothing', ''),
    ]);
    expect(Object.fromEntries(listed)).toEqual(ROOMS);
  });
});
