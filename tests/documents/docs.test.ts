import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { USAGE } from '../../src/commands/usage.ts';
import { loadConfig } from '../../src/config/config.ts';
import { isVariable, VARIABLES } from '../../src/config/variables.ts';
import { PROBLEMS, Problem, type ProblemCode, problemDocument } from '../../src/errors.ts';
import { demoBanner } from '../../src/process/demo.ts';
import { BREAK_CAUSES, NOT_RESUMED } from '../../src/relay/message/break-causes.ts';
import { createMetrics } from '../../src/watch/metrics.ts';
import { logged } from '../harness/documents/log-calls.ts';
import { anchorsOf, linksOf, sectionOf, tablesOf } from '../harness/documents/markdown.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { longestShutdownMs } from '../harness/relay/longest-shutdown.ts';
import { inFrontOf } from '../harness/relay/process.ts';

const IN_PRODUCTION = { NODE_ENV: 'production', PUBLIC_URL: 'https://chat.example.com' };
const read = (name: string) => readFileSync(join(ROOT, name), 'utf8');
const variables = Object.entries(VARIABLES).map(([name, { fallback = '' }]) => ({ name, fallback }));

/** The document of each problem, by status and code. */
const problems = (Object.keys(PROBLEMS) as ProblemCode[])
  .sort()
  .map((code) => problemDocument(new Problem(code, 'No.'), 'r'))
  .sort((one, other) => one.status - other.status);

const markdownIn = (folder: string) => readdirSync(join(ROOT, folder)).filter((name) => name.endsWith('.md'));
/** Pages that are made from the source: they link each other, and repeat what several of its types share. */
const made = markdownIn('docs/api').map((name) => `docs/api/${name}`);
const decisions = markdownIn('docs/decisions').map((name) => `docs/decisions/${name}`);
/** Pages to which docs/front-end.md leads. */
const frontEnd = markdownIn('docs/front-end').map((name) => `docs/front-end/${name}`);
const documents = [
  ...markdownIn('.'),
  'bench/README.md',
  ...markdownIn('docs').map((name) => `docs/${name}`),
  ...frontEnd,
  ...decisions,
  ...made,
];

/** All rows of all tables, with the document and the first cell of the header. */
const rows = documents.flatMap((path) =>
  tablesOf(read(path)).flatMap(({ header, rows }) => rows.map((cells) => ({ path, of: header[0], cells }))),
);

/** The name that a cell such as `NAME`, `NAME` * or [`NAME`](#name) holds and nothing else. */
const nameIn = (cell = '') => /^\[?`([^`]+)`(?: \*|\]\(#\w+\))?$/.exec(cell)?.[1];

/**
 * The documents that have a row for `name`, once for each row. A row of problems begins with the status. A message of
 * the log may be called like a problem.
 */
function placesOf(name: string): string[] {
  return rows.flatMap(({ path, of, cells: [first, second] }) =>
    (of !== 'message' && nameIn(first) === name) || (/^\d{3}$/.test(first ?? '') && nameIn(second) === name)
      ? [path]
      : [],
  );
}

/** The rows below a header that begins with `of`, in the one document that has them. */
function rowsOf(of: string, path: string): (readonly string[])[] {
  return rows.flatMap((row) => (row.of === of && row.path === path ? [row.cells] : []));
}

describe('the documentation is the code', () => {
  test('.env.example lists every variable with its default, in the order of the schema', () => {
    const lines = read('.env.example').match(/^#[A-Z_]+=.*$/gm) ?? [];
    expect(lines).toEqual(variables.map(({ name, fallback }) => `#${name}=${fallback}`));
  });

  test('docs/configuration.md lists every variable with its default, in the order of the schema', () => {
    const code = (text: string) => (text ? `\`${text}\`` : '');
    const listed = rowsOf('variable', 'docs/configuration.md').map(([name, fallback]) => [
      nameIn(name),
      fallback,
    ]);
    expect(listed).toEqual(variables.map(({ name, fallback }) => [name, code(fallback)]));
  });

  test('docs/configuration.md marks what production requires', () => {
    const cells = rowsOf('variable', 'docs/configuration.md').map(([name = '']) => name);
    expect(cells.filter((name) => name.endsWith(' *'))).toEqual([
      '`PUBLIC_URL` *',
      '`UPSTREAM_BASE_URL` *',
      '`UPSTREAM_API_KEYS` *',
      '`BOTS` *',
      '`CHANNEL_SECRET` *',
      '`SESSION_SECRETS` *',
    ]);
  });

  test('docs/problems.md lists every problem code, by status and name, and has a paragraph for each', () => {
    const rows = problems.map(({ status, code, retryable }) =>
      [status, `[\`${code}\`](#${code})`, `\`${JSON.stringify(retryable)}\``].map(String),
    );
    const [table] = tablesOf(sectionOf(read('docs/problems.md'), '## All codes'));
    expect(table?.rows).toEqual(rows);
    const paragraphs = [...read('docs/problems.md').matchAll(/^### `(.+)`$/gm)].map(([, code]) => code);
    expect(paragraphs).toEqual(problems.map(({ code }) => code));
  });

  test.each(problems)('the type of $code is a link to its paragraph', ({ code, type }) => {
    const [path = '', anchor = ''] = type.split('#');
    expect(anchor).toBe(code);
    expect(anchorsOf(read(path))).toContain(anchor);
  });

  test('docs/operate.md lists every field and every message of the log, and no others', () => {
    const listed = (of: string) => rowsOf(of, 'docs/operate.md').map(([name]) => nameIn(name));
    const { fields, messages } = logged();
    expect(listed('log field').sort()).toEqual([...fields].sort());
    expect(listed('message').sort()).toEqual([...messages].sort());
  });

  test('docs/operate.md lists why streams break and why they are not resumed, in the order of the code', () => {
    const listed = (of: string) => rowsOf(of, 'docs/operate.md').map(([name]) => nameIn(name));
    expect(listed('cause of a break')).toEqual(BREAK_CAUSES);
    expect(listed('reason not to resume')).toEqual(NOT_RESUMED);
  });

  test("the README's curl commands are those of the start banner", () => {
    const commands = (text: string) => text.match(/curl -[cN].*$/gm);
    const tried = commands(sectionOf(read('README.md'), '## Try it'));
    expect(tried).toEqual(commands(demoBanner('http://localhost:3000', loadConfig({}))));
    expect(tried).toHaveLength(2);
  });

  test('the settings to paste for each way to sign in are good, and those of that way', () => {
    const blocks = [...read('docs/sign-in.md').matchAll(/```ini\n([\s\S]*?)```/g)];
    const modes = blocks.map(([, settings = '']) => loadConfig(settingsIn(settings)).authMode);
    expect(modes).toEqual(['password', 'oidc', 'guest']);
  });

  test.each(['README.md', 'docs/deploy.md'])(
    'the settings to paste for production in %s are good once the secrets are replaced',
    (path) => {
      const [, block = ''] = /```ini\n([\s\S]*?)```/.exec(read(path)) ?? [];
      const settings = settingsIn(block.replace(/^ +/gm, ''));
      expect(() => loadConfig(settings)).toThrow(
        /CHANNEL_SECRET holds a sample[\s\S]*SESSION_SECRETS holds a sample/,
      );
      const secret = '0a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p';
      const replaced = { ...settings, SESSION_SECRETS: secret, CHANNEL_SECRET: `${secret}-other` };
      expect(loadConfig(replaced).production).toBe(true);
    },
  );

  test.each(['terminationGracePeriodSeconds: ', 'TimeoutStopSec=', 'stop_grace_period: '])(
    'docs/deploy.md leaves a relay in production its longest shutdown with %s',
    (name) => {
      const [, seconds] = new RegExp(`\`${name}(\\d+)`).exec(read('docs/deploy.md')) ?? [];
      const { shutdown } = loadConfig({ ...inFrontOf('https://bots.example.net'), ...IN_PRODUCTION });
      expect(Number(seconds) * 1000).toBeGreaterThan(longestShutdownMs(shutdown));
    },
  );

  test('every npm script that a document names exists', () => {
    const scripts = (JSON.parse(read('package.json')) as { scripts: Record<string, string> }).scripts;
    const named = documents.flatMap((path) =>
      [...read(path).matchAll(/(?:`|^|&& )npm (?:run )?([a-z]+(?:-[a-z]+)*)/gm)].map(([, name]) => name),
    );
    expect(named).toContain('start');
    // These are npm's own.
    const missing = named.filter((name = '') => !(name in scripts) && !/^(install|ci|create)$/.test(name));
    expect(missing).toEqual([]);
  });

  test('every command of bot-relay that a document names exists, and none is named by its file', () => {
    const commands = [...USAGE.matchAll(/^.* bot-relay ([a-z-]+)/gm)].map(([, name]) => name);
    const named = documents.flatMap((path) =>
      [...read(path).matchAll(/(?:npx|relay-1) bot-relay ([a-z-]+)/g)].map(([, name]) => name),
    );
    expect(commands).toContain('--check-config');
    expect(new Set(named)).toEqual(new Set(commands));
    expect(documents.filter((path) => read(path).includes('dist/main.js'))).toEqual([]);
  });
});

function settingsIn(block: string): Record<string, string> {
  const settings = Object.fromEntries(
    block
      .trim()
      .split('\n')
      .map((line) => line.split(/=(.*)/s).slice(0, 2)),
  );
  for (const name of Object.keys(settings)) expect(isVariable(name)).toBe(true);
  return settings;
}

describe('each thing is described once', () => {
  const metrics = createMetrics([]).registry.getMetricsAsArray() as unknown as { name: string }[];
  const own = metrics.map(({ name }) => name).filter((name) => name.startsWith('bot_relay_'));
  const described = [
    ['docs/configuration.md', variables.map(({ name }) => name)],
    ['docs/problems.md', Object.keys(PROBLEMS)],
    ['docs/operate.md', own],
  ] as const;

  test.each(described)('%s alone has a row for each name, and one only', (path, names) => {
    expect(names.length).toBeGreaterThan(10);
    expect(names.map((name) => [name, placesOf(name)])).toEqual(names.map((name) => [name, [path]]));
  });

  test('the fields and messages of the log have one table each, in docs/operate.md', () => {
    const paths = rows.filter(({ of }) => of === 'log field' || of === 'message').map(({ path }) => path);
    expect(new Set(paths)).toEqual(new Set(['docs/operate.md']));
  });
});

describe('the documents', () => {
  test('install nothing of this project by name, since it is on no public registry', () => {
    const byName =
      /\b(?:npm|npx|pnpm|yarn)\b[^\n`]*?\s["']?bot-relay(?:-client)?(?:@[^\s`]*)?["']?(?=[\s`]|$)/gm;
    const scripts = ['package.json', 'deploy/Dockerfile', '.ci/run', 'docker-compose.yml'];
    expect('npm install -D bot-relay-client@1 && ls'.match(byName)).toHaveLength(1);
    const others = ['tests', 'bench', 'examples'].flatMap((folder) =>
      readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
        .map((name) => join(folder, name))
        .filter((name) => /\.(?:[jt]sx?|json|html|md|vue|svelte)$/.test(name) && !/node_modules/.test(name)),
    );
    expect(others.length).toBeGreaterThan(200);
    const texts = [...documents, ...scripts, ...others].filter(
      (path) => path !== 'tests/documents/docs.test.ts',
    );
    // In a checkout, `npx bot-relay` is the program of that checkout.
    const without = (path: string) => read(path).replaceAll('npx bot-relay', '');
    expect(texts.flatMap((path) => without(path).match(byName) ?? [])).toEqual([]);
  });

  test.each(documents)('%s has only links whose targets exist', (name) => {
    const broken = linksOf(read(name)).filter((link) => {
      if (/^https?:/.test(link)) return false;
      const [path = '', anchor] = link.split('#');
      const target = path ? normalize(join(dirname(name), path)) : name;
      if (!existsSync(join(ROOT, target))) return true;
      return anchor !== undefined && !anchorsOf(read(target)).includes(anchor);
    });
    expect(broken).toEqual([]);
  });

  test('show each picture, which is small', () => {
    const text = documents.map(read).join('');
    const pictures = readdirSync(join(ROOT, 'docs/images'));
    expect(pictures.filter((name) => !text.includes(`images/${name}`))).toEqual([]);
    expect(pictures.filter((name) => statSync(join(ROOT, 'docs/images', name)).size > 60_000)).toEqual([]);
  });

  test('are all linked from the README, with the licence', () => {
    const links = linksOf(read('README.md'));
    const inFolders = [...made, ...decisions, ...frontEnd];
    const others = [
      ...documents.filter(
        (name) => name !== 'README.md' && (!inFolders.includes(name) || name.endsWith('/README.md')),
      ),
      'LICENSE',
    ];
    expect(others).toEqual(expect.arrayContaining(['CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md']));
    expect(others.filter((name) => !links.includes(name))).toEqual([]);
  });

  test('for front-end developers are all linked from their first page', () => {
    const links = linksOf(read('docs/front-end.md')).map((link) => `docs/${link}`);
    expect(frontEnd.length).toBeGreaterThan(5);
    expect(frontEnd.filter((name) => !links.includes(name))).toEqual([]);
  });

  test('of the decisions are all in their list, and each has its four parts', () => {
    const listed = linksOf(read('docs/decisions/README.md')).filter((link) => !link.includes('/'));
    const pages = markdownIn('docs/decisions').filter((name) => name !== 'README.md');
    expect(listed.sort()).toEqual(pages.sort());
    for (const name of pages) {
      const parts = /^# .+\n\nStatus: .+\n\n## Context\n[\s\S]+\n## Decision\n[\s\S]+\n## Consequences\n/;
      expect([name, parts.test(read(`docs/decisions/${name}`))]).toEqual([name, true]);
    }
  });

  test('name every proof, and no other one', () => {
    const named = rows.filter(({ path, of }) => path === 'CONTRIBUTING.md' && of === 'proof');
    const proofs = readdirSync(join(ROOT, 'tests/prove')).filter((name) => name.endsWith('.proof.ts'));
    expect(named.map(({ cells: [name] }) => name)).toEqual(
      proofs.map((name) => `\`${name.replace('.proof.ts', '')}\``).sort(),
    );
  });

  test('name no file that does not exist', () => {
    const named = documents.flatMap((name) =>
      [...read(name).matchAll(/`((?:src|tests|bench|deploy(?!\/secrets))\/[^`*…]+)`/g)].map(
        ([, path = '']) => path,
      ),
    );
    expect(named.length).toBeGreaterThan(10);
    expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});
