import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { loadConfig } from '../src/config/config.ts';
import { isVariable, VARIABLES } from '../src/config/variables.ts';
import { demoBanner } from '../src/demo/start-demo.ts';
import { PROBLEMS } from '../src/errors.ts';
import { anchorsOf, linksOf } from './support/markdown.ts';
import { ROOT } from './support/sources.ts';

const read = (name: string) => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');
const readme = read('README.md');
const variables = Object.entries(VARIABLES).map(([name, { fallback = '' }]) => ({ name, fallback }));

/** What stands below the heading `section` of the second level. */
function textOf(section: string): string {
  const start = readme.indexOf(`\n## ${section}\n`);
  return readme.slice(start, readme.indexOf('\n## ', start + 1));
}

/** The cells of the table rows whose first cell, or second if `column` is 1, is code. */
function rows(section: string): string[][] {
  return textOf(section)
    .split('\n')
    .filter((line) => /^\| (\d|`)/.test(line))
    .map((line) =>
      line
        .slice(1, -1)
        .split('|')
        .map((cell) => cell.trim()),
    );
}

describe('the documentation is the code', () => {
  test('.env.example lists every variable with its default, in the order of the schema', () => {
    const lines = read('.env.example').match(/^#[A-Z_]+=.*$/gm) ?? [];
    expect(lines).toEqual(variables.map(({ name, fallback }) => `#${name}=${fallback}`));
  });

  test("the README's table lists every variable with its default, in the order of the schema", () => {
    const code = (text: string) => (text ? `\`${text}\`` : '');
    const listed = rows('Configuration').map(([name = '', fallback]) => [name.replace(' *', ''), fallback]);
    expect(listed).toEqual(variables.map(({ name, fallback }) => [code(name), code(fallback)]));
  });

  test('the README marks what production requires', () => {
    const marked = rows('Configuration').flatMap(([name = '']) => (name.endsWith(' *') ? [name] : []));
    expect(marked).toEqual([
      '`PUBLIC_URL` *',
      '`UPSTREAM_BASE_URL` *',
      '`UPSTREAM_API_KEYS` *',
      '`BOTS` *',
      '`SESSION_SECRETS` *',
    ]);
  });

  test("the README's table of errors is the table of codes", () => {
    const listed = rows('Errors').map(([status, code]) => `${status} ${code}`);
    const codes = Object.entries(PROBLEMS).map(([code, { status }]) => `${status} \`${code}\``);
    expect(listed.sort()).toEqual(codes.sort());
  });

  test("the README's curl commands are those of the start banner", () => {
    const commands = (text: string) => text.match(/curl -[cN].*$/gm);
    expect(commands(textOf('Try it'))).toEqual(commands(demoBanner('http://localhost:3000', loadConfig({}))));
    expect(commands(textOf('Try it'))).toHaveLength(2);
  });

  test('the settings to paste for each way to sign in are good, and those of that way', () => {
    const blocks = [...textOf('How users sign in').matchAll(/```ini\n([\s\S]*?)```/g)];
    const modes = blocks.map(([, settings = '']) => {
      const environment = Object.fromEntries(
        settings
          .trim()
          .split('\n')
          .map((line) => line.split(/=(.*)/s).slice(0, 2)),
      );
      for (const name of Object.keys(environment)) expect(isVariable(name)).toBe(true);
      return loadConfig(environment).authMode;
    });
    expect(modes).toEqual(['password', 'oidc', 'guest']);
  });

  test('every npm script that the README names exists', () => {
    const scripts = (JSON.parse(read('package.json')) as { scripts: Record<string, string> }).scripts;
    const named = [...readme.matchAll(/(?:`|^|&& )npm (?:run )?([a-z]+)/gm)].map(([, name]) => name);
    expect(named).toContain('start');
    for (const name of new Set(named)) {
      // These are npm's own.
      if (name !== 'install' && name !== 'pack') expect(Object.keys(scripts)).toContain(name);
    }
  });
});

const documents = [
  'README.md',
  'bench/README.md',
  ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`),
];

describe('the documents', () => {
  test.each(documents)('%s leads nowhere that is not there', (name) => {
    const broken = linksOf(read(name)).filter((link) => {
      if (/^https?:/.test(link)) return false;
      const [path = '', anchor] = link.split('#');
      const target = path ? normalize(join(dirname(name), path)) : name;
      if (!existsSync(join(ROOT, target))) return true;
      return anchor !== undefined && !anchorsOf(read(target)).includes(anchor);
    });
    expect(broken).toEqual([]);
  });

  test('are read from the README', () => {
    const links = linksOf(read('README.md'));
    expect(documents.filter((name) => name !== 'README.md' && !links.includes(name))).toEqual([]);
  });

  test('name no file that is not there', () => {
    const named = documents.flatMap((name) =>
      [...read(name).matchAll(/`((?:src|tests|bench|deploy(?!\/secrets))\/[^`*…]+)`/g)].map(
        ([, path = '']) => path,
      ),
    );
    expect(named.length).toBeGreaterThan(10);
    expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});
