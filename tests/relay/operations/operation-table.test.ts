import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { loadConfig } from '../../../src/config/config.ts';
import { endpointOf, METHODS, OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { sectionOf, tablesOf } from '../../harness/documents/markdown.ts';
import { ROOT } from '../../harness/documents/sources.ts';
import { freshFolder, stopProcesses } from '../../harness/relay/process.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';

const BASES = ['/ns/acme/bot-provider/helper', '/generic/ns/acme/bot-provider/helper'];
const EVERY_METHOD = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];
/** Paths of the bot service that no browser may reach. */
const NEVER = [
  ...['POST message', 'POST message/dispatch', 'POST message/json', 'POST message/form', 'POST json'],
  ...[
    'GET sandbox/one/editor',
    'POST sandbox/one/heartbeat',
    'GET source-set/one',
    'GET history',
    'GET fs/list',
  ],
];

const pathOf = (path: string) => path.replace(':sandbox', 'one');
const rows = OPERATIONS.map(({ method, path, group }) => ({ method, path, group }));
const paths = [...new Set(OPERATIONS.map(({ path }) => path))];

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => void socket.destroy(), {
    BOTS: 'acme/helper,acme/other',
    OPERATIONS: 'message',
  });
});
afterAll(async () => {
  await pair.close();
  await stopProcesses();
});

const ask = (method: string, path: string, headers: Record<string, string> = {}) =>
  call(pair.relay.port, path, { method, headers: { Cookie: pair.cookie, ...headers } });

describe('the table of operations', () => {
  test('has each method of a path once', () => {
    expect(new Set(rows.map(({ method, path }) => `${method} ${path}`)).size).toBe(rows.length);
  });

  test('is the table in docs/http.md', () => {
    const [table] = tablesOf(sectionOf(readFileSync(join(ROOT, 'docs/http.md'), 'utf8'), '## Bots'));
    const listed = table?.rows.map(([group = '', operation = '']) => [
      group.slice(1, -1),
      /^`([A-Z]+ [^`?]+)/.exec(operation)?.[1]?.trim(),
    ]);
    expect(listed).toEqual(
      rows.map(({ group, method, path }) => [group, `${method} ${path.replace(':sandbox', '{sandbox}')}`]),
    );
  });

  test('gives each path a budget of its own; that of a message has the name of its bot', () => {
    const names = paths.map((path) => endpointOf({ path }, 'acme/helper'));
    expect(new Set(names).size).toBe(paths.length);
    expect(endpointOf({ path: 'message/sse' }, 'acme/helper')).toBe('acme/helper');
    for (const name of names) expect(name.split('/', 2).join('/')).toBe('acme/helper');
  });

  test('names every method that CORS allows', () => {
    expect([...METHODS].sort()).toEqual(['DELETE', 'GET', 'POST', 'PUT']);
  });
});

describe.each(BASES)('below %s', (base) => {
  test.each(paths)('%s takes no other method', async (path) => {
    const taken = rows.filter((row) => row.path === path).map(({ method }) => String(method));
    for (const method of EVERY_METHOD.filter((each) => !taken.includes(each))) {
      const answer = await ask(method, `${base}/${pathOf(path)}`);
      expect([method, answer.status]).toEqual([method, 405]);
      expect(String(answer.headers.allow).split(', ').sort()).toEqual(taken.sort());
    }
  });

  test.each(NEVER)('%s does not exist', async (line) => {
    const [method = '', path] = line.split(' ');
    expectProblem(await ask(method, `${base}/${path}`), 404, 'not_found');
  });
});

test.each(['Sandbox', 'nonsense', ',', 'message chat'])(
  'OPERATIONS=%s is a wrong setting, since there is no such group',
  (operations) => {
    expect(() => loadConfig({ OPERATIONS: operations })).toThrow(/OPERATIONS must/);
  },
);

test('operations of BOTS_FILE must name groups', () => {
  const load = (operations: unknown) => () =>
    loadConfig({
      BOTS: 'acme/helper',
      BOTS_FILE: `${freshFolder({ 'bots.json': JSON.stringify({ 'acme/helper': { operations } }) })}/bots.json`,
    });
  for (const wrong of [[], ['Sandbox'], 'chat', [1]])
    expect(load(wrong)).toThrow(
      'BOTS_FILE: acme/helper operations must be a list of message or chat or files or metadata or sandbox',
    );
  expect(load(['chat'])).not.toThrow(/operations/);
});
