import type { Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OPERATION_GROUPS, PATH_SHAPES } from '../../../src/bots/bot.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { errorEventIn, expectErrorEvent } from '../../harness/clients/error-event.ts';
import {
  ask,
  CARRIED,
  channelIn,
  goodAnswer,
  operationRequest,
} from '../../harness/clients/operation-requests.ts';
import {
  ALLOWED_ORIGIN,
  ORIGIN_TABLE,
  originHeaders,
  passesOriginCheck,
} from '../../harness/clients/origin-table.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/clock/until.ts';
import { freePort } from '../../harness/relay/free-port.ts';
import { freshFolder, stopProcesses } from '../../harness/relay/process.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay } from '../../harness/relay/relay.ts';
import type { RelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { SANDBOX_REQUEST, startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';
import type { RawRequest } from '../../harness/service/raw-upstream.ts';

const MAX_BODY_BYTES = 2000;
const UPSTREAM_ID = /^[0-9a-f]{64}$/;
/** Every row, in both shapes. */
const CASES = CARRIED.flatMap((operation) =>
  PATH_SHAPES.map((shape) => ({
    operation,
    shape,
    line: `${operation.method} ${shape}/…/${operation.path}`,
  })),
).map((one, number) => ({ ...one, number }));
/** Each case tries such a part of the table of origins, in turn; messages have a test of the whole one. */
const ORIGIN_PARTS = 11;

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
    ALLOWED_ORIGINS: ALLOWED_ORIGIN,
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

describe.each(CASES)('$line', ({ operation, shape, number }) => {
  const { method, path, group, channel, carriedBy, givesFile } = operation;
  const hasChannel = channel !== 'none';
  /** What the client sees of the id; a file is never changed. */
  const seenOf = (sent: string) => (hasChannel && !givesFile ? 'mine' : sent);
  const refusedWithoutSending = (changes: Parameters<typeof ask>[2]) =>
    sends(0, () => ask(pair, operation, { shape, ...changes }));

  test('reaches the conversation of its user, in the same shape and with a key', async () => {
    serve = (socket, request) => void socket.write(goodAnswer(operation, channelIn(request)));
    const answer = await sends(1, () => ask(pair, operation, { shape, channel: 'mine' }));
    const request = pair.upstream.requests.at(-1);
    expect([answer.status, answer.body]).toEqual([
      200,
      expect.stringContaining(`{"customChannelId":"${seenOf(String(request && channelIn(request)))}"}`),
    ]);
    const [sentMethod, target = ''] = request?.requestLine.split(' ') ?? [];
    const sentPath = `${shape}/acme/bot-provider/helper/${path.replace(':sandbox', 'one')}`;
    expect([sentMethod, target.split('?')[0]]).toEqual([method, sentPath]);
    expect(request && channelIn(request)).toMatch(hasChannel ? UPSTREAM_ID : /^none$/);
    expect(request?.all('x-api-key')).toEqual([CANARY.key]);
    expect(request?.all('cookie')).toEqual([]);
    for (const name of ['etag', 'set-cookie', 'last-modified'])
      expect(answer.headers).not.toHaveProperty(name);
    expect(answer.headers['x-content-type-options']).toBe('nosniff');
    expect(answer.headers['cache-control']).toMatch(/^no-(store|cache, no-transform)$/);
  });

  test('reaches no conversation of another user, by neither of its ids', async () => {
    const seen: string[] = [];
    serve = (socket, request) => {
      seen.push(channelIn(request));
      socket.write(goodAnswer(operation, channelIn(request)));
    };
    await ask(pair, operation, { shape, channel: 'mine' });
    const asOther = { shape, headers: { Cookie: other } };
    const answer = await ask(pair, operation, { ...asOther, channel: 'mine' });
    await ask(pair, operation, { ...asOther, channel: seen[0] ?? '' });
    expect(new Set(seen).size).toBe(hasChannel ? 3 : 1);
    expect(answer.body).toContain(`{"customChannelId":"${seenOf(seen[1] ?? '')}"}`);
  });

  test('needs a session', async () => {
    for (const Cookie of ['', `${pair.cookie}x`, 'bot_relay_session=evil']) {
      const answer = await refusedWithoutSending({ headers: { Cookie } });
      expectProblem(answer, 401, 'unauthenticated');
    }
  });

  test('is refused for pages of other sites', async () => {
    const rows = ORIGIN_TABLE.filter((_row, n) => n % ORIGIN_PARTS === number % ORIGIN_PARTS);
    expect(new Set(rows.map(([site, origin]) => passesOriginCheck(site, origin))).size).toBe(2);
    const askAll = () =>
      Promise.all(
        rows.map(async ([site, origin]) => {
          // What passes gets the next refusal.
          const noCookie = passesOriginCheck(site, origin) && { Cookie: '' };
          const headers = { ...originHeaders(site, origin), ...noCookie };
          const { body } = await ask(pair, operation, { shape, headers });
          return [site, origin, (JSON.parse(body) as { code: string }).code];
        }),
      );
    expect(await sends(0, askAll)).toEqual(
      rows.map(([site, origin]) => [
        ...[site, origin],
        passesOriginCheck(site, origin) ? 'unauthenticated' : 'cross_site_request',
      ]),
    );
  });

  test('is refused for a bot that is not on the list', async () => {
    for (const bot of ['foreign', 'Helper', 'helper%00', 'x%2F..%2Fhelper'])
      expectProblem(await refusedWithoutSending({ bot }), 404, 'unknown_bot');
  });

  test('is answered 501 where its group is off', async () => {
    const answer = await refusedWithoutSending({ bot: `no-${group}` });
    expectProblem(answer, 501, 'operation_not_enabled');
  });

  test('is answered with the 404 of the service if that is JSON', async () => {
    serve = (socket, request) =>
      void socket.write(jsonAnswer('404 Not Found', { error: { id: channelIn(request) } }));
    const answer = await sends(1, () => ask(pair, operation, { shape, channel: 'mine' }));
    const error = { id: hasChannel ? 'mine' : 'none' };
    if (carriedBy === 'message') expectErrorEvent(answer, 404, 'upstream_refused', { upstream: { error } });
    else expect([answer.status, answer.body]).toEqual([404, JSON.stringify({ error })]);
  });

  test('is answered 502, or as a refused message, if the 404 of the service is no JSON', async () => {
    const html = '<p>not here</p>';
    serve = (socket) =>
      void socket.write(
        `HTTP/1.1 404 No\r\nContent-Type: text/html\r\nContent-Length: ${html.length}\r\n\r\n${html}`,
      );
    const answer = await sends(1, () => ask(pair, operation, { shape }));
    if (carriedBy === 'message') expectErrorEvent(answer, 404, 'upstream_refused', { retryable: false });
    else expect(answer.status).toBe(502);
    expect(answer.body).not.toContain('not here');
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
    const broken = await sends(1, () => ask(pair, operation, { shape }));
    expect(broken.status).toBe(carriedBy === 'message' ? 200 : 502);
    const failure = carriedBy === 'message' ? errorEventIn(broken.body) : JSON.parse(broken.body);
    expect(failure).toMatchObject({ status: 502 });
  });

  test('ends at the service when its client leaves', async () => {
    let reached: Socket | undefined;
    serve = (socket) => {
      reached = socket;
    };
    const { headers, path: target, body } = operationRequest(operation, { shape });
    const id = `${group === 'sandbox' ? SANDBOX_REQUEST : ''}left-${CASES.findIndex((each) => each.operation === operation)}${shape.length}-0001`;
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
});

/** The ids and bounds of forms have tests of their own. */
describe.each(CASES.filter(({ operation: { channel } }) => channel === 'json' || channel === 'query'))(
  '$line',
  ({ operation, shape }) => {
    const { channel, carriedBy } = operation;

    test('needs the id of a conversation, unless it is a message', async () => {
      serve = (socket) => void socket.write(goodAnswer(operation, 'none'));
      const { headers, body, ...request } = operationRequest(operation, { shape, channel: '' });
      const ids = channel === 'json' ? ['{}', '{"customChannelId":""}'] : ['', '?custom_channel_id='];
      for (const [at, id] of ids.entries()) {
        const isTaken = at === 0 && carriedBy === 'message';
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
  },
);

/** The largest JSON of an operation, in bytes. */
const largestOf = ({ carriedBy, maxBodyBytes = 0 }: (typeof CARRIED)[number]) =>
  carriedBy === 'message' ? MAX_BODY_BYTES : maxBodyBytes;
const SMALL = '{"customChannelId":"c1"}';

describe.each(CASES.filter(({ operation }) => !operation.takesFile))('$line', ({ operation, shape }) => {
  const { method, channel } = operation;

  test('is refused with a body that is too large, or that it does not take', async () => {
    const body = channel === 'json' ? SMALL.padEnd(largestOf(operation) + 1) : 'x';
    const whole = await sends(0, () => ask(pair, operation, { shape, body }));
    expectProblem(whole, 413, 'body_too_large');
    const chunked = { body, headers: { 'Transfer-Encoding': 'chunked' } };
    const { headers, ...request } = operationRequest(operation, { shape, ...chunked });
    const { 'Content-Length': _, ...rest } = headers;
    const answer = await sends(0, () =>
      call(pair.relay.port, request.path, { method, body, headers: { ...rest, Cookie: pair.cookie } }),
    );
    expectProblem(answer, 413, 'body_too_large');
  });
});

test.each(CASES.filter(({ operation }) => operation.channel === 'json'))(
  '$line takes the largest body',
  async ({ operation, shape }) => {
    serve = (socket, { body: sent }) => void socket.write(goodAnswer(operation, String(sent.length)));
    expect((await ask(pair, operation, { shape, body: SMALL.padEnd(largestOf(operation)) })).status).toBe(
      200,
    );
  },
);
