import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OPERATION_GROUPS, PATH_SHAPES } from '../../../src/bots/bot.ts';
import { loadConfig } from '../../../src/config/config.ts';
import type { ProblemCode } from '../../../src/errors.ts';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { errorEventIn, expectErrorEvent } from '../../harness/clients/error-event.ts';
import {
  ask,
  CARRIED,
  channelIn,
  goodAnswer,
  type OperationRequestChanges,
  operationRequest,
} from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/clock/until.ts';
import { sectionOf, tablesOf } from '../../harness/documents/markdown.ts';
import { ROOT } from '../../harness/documents/sources.ts';
import { freePort } from '../../harness/relay/free-port.ts';
import { freshFolder, stopProcesses } from '../../harness/relay/process.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay } from '../../harness/relay/relay.ts';
import type { RelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { SANDBOX_REQUEST, startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';
import { plainAnswer, type RawRequest } from '../../harness/service/raw-upstream.ts';

const MAX_BODY_BYTES = 2000;
const UPSTREAM_ID = /^[0-9a-f]{64}$/;
/** Every row. Both shapes have the same steps behind their routes, so that each failure is tried in one of them, in turn. */
const ROWS = CARRIED.map((operation, number) => ({
  operation,
  number,
  shape: PATH_SHAPES[number % PATH_SHAPES.length] as (typeof PATH_SHAPES)[number],
  line: `${operation.method} ${operation.path}`,
}));

let pair: RelayAndUpstream;
/** A relay whose bot service is down. */
let alone: TestRelay;
let other: string;
/** What the bot service does with the next requests. */
let serve: (socket: Socket, request: RawRequest) => void;

beforeAll(async () => {
  // For each group, a bot that has all groups but this one.
  const without = OPERATION_GROUPS.map((group) => [
    `acme/no-${group}`,
    { operations: OPERATION_GROUPS.filter((each) => each !== group) },
  ]);
  const file = JSON.stringify(Object.fromEntries(without));
  pair = await startWithSandboxes((socket, request) => serve(socket, request), {
    BOTS: ['acme/helper', ...without.map(([name]) => name)].join(),
    BOTS_FILE: `${freshFolder({ 'bots.json': file })}/bots.json`,
    OPERATIONS: OPERATION_GROUPS.join(),
    MAX_BODY_BYTES: String(MAX_BODY_BYTES),
  });
  other = await pair.relay.signIn(OTHER_USER);
  alone = await startRelay(`http://127.0.0.1:${await freePort()}`, { OPERATIONS: OPERATION_GROUPS.join() });
});
afterAll(async () => {
  await alone.close();
  await pair.close();
  await stopProcesses();
});

/** Expects that `run` causes so many requests to the bot service; returns what it returns. */
async function sends<T>(count: number, run: () => Promise<T>): Promise<T> {
  const { requests, sockets } = pair.upstream;
  const [before, opened] = [requests.length, sockets.length];
  const result = await run();
  expect(requests.length - before).toBe(count);
  if (count === 0) expect(sockets.length).toBe(opened);
  return result;
}

describe.each(ROWS)('$line', ({ operation, shape, number }) => {
  const { method, path, group, channel, carriedBy, givesFile, takesFile, maxBodyBytes = 0 } = operation;
  const hasChannel = channel !== 'none';
  const isMessage = carriedBy === 'message';
  /** What the client sees of the id; a file is never changed. */
  const seenOf = (sent: string) => (hasChannel && !givesFile ? 'mine' : sent);
  const asked = (count: number, changes: OperationRequestChanges = {}) =>
    sends(count, () => ask(pair, operation, { shape, channel: 'mine', ...changes }));
  const isRefused = async (changes: OperationRequestChanges, status: number, code: ProblemCode) =>
    void expectProblem(await asked(0, changes), status, code);

  test.each(PATH_SHAPES)(
    'reaches the conversation of its user in the shape %s, with a key',
    async (inShape) => {
      serve = (socket, request) => void socket.write(goodAnswer(operation, channelIn(request)));
      const answer = await asked(1, { shape: inShape });
      const request = pair.upstream.requests.at(-1) as RawRequest;
      expect([answer.status, answer.body]).toEqual([
        200,
        expect.stringContaining(`{"customChannelId":"${seenOf(channelIn(request))}"}`),
      ]);
      const [sentMethod, target = ''] = request.requestLine.split(' ');
      const sentPath = `${inShape}/acme/bot-provider/helper/${path.replace(':sandbox', 'one')}`;
      expect([sentMethod, target.split('?')[0]]).toEqual([method, sentPath]);
      expect(channelIn(request)).toMatch(hasChannel ? UPSTREAM_ID : /^none$/);
      expect([request.all('x-api-key'), request.all('cookie')]).toEqual([[CANARY.key], []]);
      for (const name of ['etag', 'set-cookie', 'last-modified'])
        expect(answer.headers).not.toHaveProperty(name);
      expect(answer.headers['x-content-type-options']).toBe('nosniff');
      expect(answer.headers['cache-control']).toMatch(/^no-(store|cache, no-transform)$/);
    },
  );

  test('reaches no conversation of another user, by neither of its ids', async () => {
    const seen: string[] = [];
    serve = (socket, request) => {
      seen.push(channelIn(request));
      socket.write(goodAnswer(operation, channelIn(request)));
    };
    await asked(1);
    const headers = { Cookie: other };
    const answer = await asked(1, { headers });
    await asked(1, { headers, channel: seen[0] ?? '' });
    expect(new Set(seen).size).toBe(hasChannel ? 3 : 1);
    expect(answer.body).toContain(`{"customChannelId":"${seenOf(seen[1] ?? '')}"}`);
  });

  test('is refused without a session, for pages of other sites, for other bots and without its group', async () => {
    for (const Cookie of ['', `${pair.cookie}x`])
      await isRefused({ headers: { Cookie } }, 401, 'unauthenticated');
    await isRefused({ headers: { 'Sec-Fetch-Site': 'cross-site' } }, 403, 'cross_site_request');
    for (const bot of ['foreign', 'x%2F..%2Fhelper']) await isRefused({ bot }, 404, 'unknown_bot');
    await isRefused({ bot: `no-${group}` }, 501, 'operation_not_enabled');
  });

  test('is answered with the 404 of the service if that is JSON, and with no other page', async () => {
    serve = (socket, request) =>
      void socket.write(jsonAnswer('404 Not Found', { error: { id: channelIn(request) } }));
    const answer = await asked(1);
    const error = { id: hasChannel ? 'mine' : 'none' };
    if (isMessage) expectErrorEvent(answer, 404, 'upstream_refused', { upstream: { error } });
    else expect([answer.status, answer.body]).toEqual([404, JSON.stringify({ error })]);
    serve = (socket) =>
      void socket.write(plainAnswer('404 No', ['Content-Type: text/html'], '<p>not here</p>'));
    const page = await asked(1);
    if (isMessage) expectErrorEvent(page, 404, 'upstream_refused', { retryable: false });
    else expect(page.status).toBe(502);
    expect(page.body).not.toContain('not here');
  });

  test('is answered with an error of status 502 when the service is down, or breaks off', async () => {
    const { headers, path: target, body } = operationRequest(operation, { shape });
    const cookie = await alone.signIn();
    const down = await call(alone.port, target, {
      method,
      headers: { Cookie: cookie, ...headers },
      ...(body !== undefined && { body }),
    });
    expectProblem(down, 502, 'upstream_unreachable', { retryable: 'new message' });
    serve = (socket) => socket.destroy();
    const broken = await asked(1);
    expect(broken.status).toBe(isMessage ? 200 : 502);
    expect(isMessage ? errorEventIn(broken.body) : JSON.parse(broken.body)).toMatchObject({ status: 502 });
  });

  test('ends at the service when its client leaves', async () => {
    let reached: Socket | undefined;
    serve = (socket) => {
      reached = socket;
    };
    const { headers, path: target, body } = operationRequest(operation, { shape });
    const id = `${group === 'sandbox' ? SANDBOX_REQUEST : ''}left-${number}-00001`;
    const lines = Object.entries({ ...headers, Host: 'a', Cookie: pair.cookie, 'X-Request-Id': id });
    const head = [`${method} ${target} HTTP/1.1`, ...lines.map(([name, value]) => `${name}: ${value}`)];
    const client = rawClient(pair.relay.port, `${head.join('\r\n')}\r\n\r\n${body ?? ''}`);
    await until(() => reached !== undefined);
    client.socket.destroy();
    await until(() => reached?.destroyed === true);
    expect(await pair.relay.logLine(({ requestId }) => requestId === id)).toMatchObject({
      ...{ method, status: 499, outcome: 'client_closed', bot: 'acme/helper', userId: 'ada' },
    });
  });

  // The ids of forms have tests of their own.
  if (channel === 'json' || channel === 'query')
    test('needs the id of a conversation, unless it is a message', async () => {
      serve = (socket) => void socket.write(goodAnswer(operation, 'none'));
      const { headers, body, ...request } = operationRequest(operation, { shape, channel: '' });
      const ids = channel === 'json' ? ['{}', '{"customChannelId":""}'] : ['', '?custom_channel_id='];
      for (const [at, id] of ids.entries()) {
        const isTaken = at === 0 && isMessage;
        const target = channel === 'json' ? request.path : (request.path.split('?')[0] ?? '') + id;
        const given = { ...request, headers: { ...headers, Cookie: pair.cookie } };
        if (channel === 'json') given.headers['Content-Length'] = String(id.length);
        const answer = await sends(isTaken ? 1 : 0, () =>
          call(pair.relay.port, target, { ...given, ...(channel === 'json' && { body: id }) }),
        );
        if (isTaken) expect(answer.status).toBe(200);
        else expectProblem(answer, 400, 'invalid_conversation');
      }
    });

  if (!takesFile)
    test('takes the largest body; one that is larger, or that it does not take, is refused', async () => {
      const largest = isMessage ? MAX_BODY_BYTES : maxBodyBytes;
      const small = '{"customChannelId":"c1"}';
      const body = channel === 'json' ? small.padEnd(largest + 1) : 'x';
      await isRefused({ body }, 413, 'body_too_large');
      const { headers, ...request } = operationRequest(operation, { shape, body });
      const { 'Content-Length': _, ...rest } = headers;
      const chunked = { ...rest, Cookie: pair.cookie, 'Transfer-Encoding': 'chunked' };
      const answer = await sends(0, () =>
        call(pair.relay.port, request.path, { method, body, headers: chunked }),
      );
      expectProblem(answer, 413, 'body_too_large');
      if (channel !== 'json') return;
      serve = (socket, { body: sent }) => void socket.write(goodAnswer(operation, String(sent.length)));
      expect((await asked(1, { body: small.padEnd(largest) })).status).toBe(200);
    });
});

describe('the operations', () => {
  test('are those of the table in docs/http.md', () => {
    const [table] = tablesOf(sectionOf(readFileSync(join(ROOT, 'docs/http.md'), 'utf8'), '## Bots'));
    const listed = table?.rows.map(([group = '', operation = '']) => [
      group.slice(1, -1),
      /^`([A-Z]+ [^`?]+)/.exec(operation)?.[1]?.trim(),
    ]);
    expect(listed).toEqual(
      OPERATIONS.map(({ group, method, path }) => [
        group,
        `${method} ${path.replace(':sandbox', '{sandbox}')}`,
      ]),
    );
  });

  test.each([
    ...['POST message', 'POST message/dispatch', 'POST message/json', 'POST message/form', 'POST json'],
    ...['GET sandbox/one/editor', 'POST sandbox/one/heartbeat', 'GET source-set/one', 'GET history'],
    'GET fs/list',
  ])('do not have %s of the bot service, which no browser may reach', async (line) => {
    const [method = '', path] = line.split(' ');
    for (const shape of PATH_SHAPES) {
      const target = `${shape}/acme/bot-provider/helper/${path}`;
      const answer = await sends(0, () =>
        call(pair.relay.port, target, { method, headers: { Cookie: pair.cookie } }),
      );
      expectProblem(answer, 404, 'not_found');
    }
  });

  test('are turned on by groups; there are no others', () => {
    for (const wrong of ['Sandbox', 'nonsense', ',', 'message chat'])
      expect(() => loadConfig({ OPERATIONS: wrong })).toThrow(/OPERATIONS must/);
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
});
