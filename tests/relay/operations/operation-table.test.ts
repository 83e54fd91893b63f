import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { endpointOf, METHODS, OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { sectionOf, tablesOf } from '../../harness/documents/markdown.ts';
import { ROOT } from '../../harness/documents/sources.ts';
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
afterAll(() => pair.close());

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
  test.each(rows.filter(({ group }) => group !== 'message'))(
    '$method $path of a group that is off is answered 501',
    async ({ method, path }) => {
      const answer = await ask(method, `${base}/${pathOf(path)}`);
      expectProblem(answer, 501, 'operation_not_enabled');
      expect(pair.upstream.requests).toHaveLength(0);
    },
  );

  test.each(rows)(
    '$method $path needs a session, an allowed bot and an own page',
    async ({ method, path }) => {
      const target = `${base}/${pathOf(path)}`;
      expectProblem(await ask(method, target, { Cookie: '' }), 401, 'unauthenticated');
      expectProblem(await ask(method, target.replace('helper', 'foreign')), 404, 'unknown_bot');
      const foreign = { Origin: 'https://evil.example', 'Sec-Fetch-Site': 'cross-site' };
      expectProblem(await ask(method, target, foreign), 403, 'cross_site_request');
    },
  );

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
