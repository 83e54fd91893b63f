import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { idOf } from '../harness/relay/sessions.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

const PINO = ['level', 'time', 'msg'];
const ALWAYS = ['requestId', 'method', 'route', 'status', 'outcome', 'durationMs', 'bytes', 'clientAddress'];

let upstream: RawUpstream;
let relay: TestRelay;
let cookie: string;
let answers: 'at once' | 'never' | 'by closing';
beforeEach(async () => {
  answers = 'at once';
  upstream = await startRawUpstream((socket) => {
    if (answers === 'by closing') socket.destroy();
    if (answers === 'at once') socket.write(wholeStream('data: 1\n\n'));
  });
  relay = await startRelay(upstream.url);
  cookie = await relay.signIn();
});
afterEach(async () => {
  await relay.close();
  await upstream.close();
});

const lineOf = (id: string) => relay.logLine((line) => line.requestId === id && line.msg === 'request');
const sorted = (...names: string[][]) => names.flat().sort();

describe('the access log', () => {
  test('has one line for a stream, with exactly the documented fields and no data of the request', async () => {
    const headers = {
      'X-Request-Id': 'stream-line-1',
      'X-Api-Key': 'shown-header',
      Referer: 'http://shown-referer/',
    };
    await (await relay.send(cookie, { path: `${BOT_PATH}?token=shown-query`, headers })).text();
    const line = await lineOf('stream-line-1');
    expect(Object.keys(line).sort()).toEqual(
      sorted(PINO, ALWAYS, ['slotWaitMs', 'upstreamStatus', 'firstByteMs', 'userId', 'bot']),
    );
    expect(line).toMatchObject({
      level: 'info',
      method: 'POST',
      route: '/generic/ns/:namespace/bot-provider/:botProviderName/message/sse',
      status: 200,
      outcome: 'ok',
      upstreamStatus: 200,
      bytes: Buffer.byteLength('data: 1\n\n'),
      userId: 'ada',
      bot: 'acme/helper',
      durationMs: expect.any(Number),
      firstByteMs: expect.any(Number),
      slotWaitMs: expect.any(Number),
    });
    const printed = JSON.stringify(relay.logs);
    for (const shown of ['shown-', 'token', idOf(cookie), MESSAGE]) expect(printed).not.toContain(shown);
    expect(relay.logs.filter(({ requestId }) => requestId === 'stream-line-1')).toHaveLength(1);
  });

  test('names the user who has signed in', async () => {
    const line = await relay.logLine(({ route }) => route === '/auth/login');
    expect(line).toMatchObject({ status: 200, userId: 'ada' });
  });

  test('does not show the path of a request that matches no route', async () => {
    const { body } = await call(relay.port, '/shown-path/x?shown=1', {
      headers: { 'X-Request-Id': 'lost-line-1' },
    });
    const line = await lineOf('lost-line-1');
    expect(Object.keys(line).sort()).toEqual(sorted(PINO, ALWAYS));
    expect(line).toMatchObject({
      route: 'none',
      status: 404,
      outcome: 'not_found',
      bytes: Buffer.byteLength(body),
    });
    expect(JSON.stringify(relay.logs)).not.toContain('shown');
  });

  test('names the code and the cause of a failure of the bot service, as a warning', async () => {
    answers = 'by closing';
    await relay.send(cookie, { headers: { 'X-Request-Id': 'broken-line-1' } });
    const line = await lineOf('broken-line-1');
    expect(line).toMatchObject({
      level: 'warn',
      status: 200,
      outcome: 'upstream_unreachable',
      cause: expect.stringMatching(/^[A-Z_]+$/),
    });
    expect(Object.keys(line).sort()).toEqual(sorted(PINO, ALWAYS, ['cause', 'slotWaitMs', 'userId', 'bot']));
  });

  test('reports client_closed at level info if the client leaves before its answer', async () => {
    answers = 'never';
    const client = rawClient(relay.port, rawMessage({ cookie, headers: ['X-Request-Id: left-line-1'] }));
    await upstream.nextRequest();
    client.socket.destroy();
    expect(await lineOf('left-line-1')).toMatchObject({
      level: 'info',
      status: 499,
      outcome: 'client_closed',
    });
  });

  test('logs a successful probe at debug only', async () => {
    await call(relay.port, '/healthz', { headers: { 'X-Request-Id': 'good-probe-1' } });
    expect(await lineOf('good-probe-1')).toMatchObject({ level: 'debug', status: 200 });
    relay.lifecycle.enter('leaving');
    await call(relay.port, '/readyz', { headers: { 'X-Request-Id': 'bad-probe-1' } });
    expect(await lineOf('bad-probe-1')).toMatchObject({ level: 'warn', status: 503 });
    await call(relay.port, '/healthz', { method: 'POST', headers: { 'X-Request-Id': 'no-probe-1' } });
    expect(await lineOf('no-probe-1')).toMatchObject({ level: 'info', status: 405 });
  });
});
