import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { BOT_PATH, CANARY } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
} from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, type RawRequest, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const BOTH_KEYS = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** The log line of one message to an upstream that answers with `onRequest`. */
async function lineOf(...pairOf: Parameters<typeof startRelayAndUpstream>) {
  pair = await startRelayAndUpstream(...pairOf);
  await (await pair.relay.send(pair.cookie)).text().catch(() => '');
  return pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
}

describe('the log line', () => {
  test('of a broken stream is a warning, although its status is 200', async () => {
    const line = await lineOf((socket) => socket.end(`${STREAM_HEAD}${chunk('data: 1\n\n')}`));
    expect(line).toMatchObject({ level: 'warn', status: 200, outcome: 'upstream_stream_broken' });
  });

  test('of a broken stream names the cause', async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD));
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    pair.upstream.sockets[0]?.resetAndDestroy();
    const line = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    expect(line).toMatchObject({ outcome: 'upstream_stream_broken', cause: 'ECONNRESET' });
  });

  test('names the status and type of an answer that is not a stream', async () => {
    const html = plainAnswer('200 OK', ['Content-Type: Text/HTML; charset=utf-8; x=shown'], '<p>');
    const line = await lineOf((socket) => socket.write(html));
    expect(line).toMatchObject({ cause: 'status 200, Text/HTML', upstreamStatus: 200 });
  });

  test('shows no part of a key, which is longer than a type that is shown', async () => {
    const key = `K${'0123456789'.repeat(6)}`;
    const named = plainAnswer('200 OK', [`Content-Type: text/${key}`], 'x');
    const line = await lineOf((socket) => socket.write(named), { UPSTREAM_API_KEYS: key });
    expect(line.cause).toBe('status 200, text/[secret]');
  });

  test('says that an answer was encoded', async () => {
    const gzip = plainAnswer('200 OK', ['Content-Type: text/event-stream', 'Content-Encoding: gzip'], 'x');
    const line = await lineOf((socket) => socket.write(gzip));
    expect(line).toMatchObject({ cause: 'status 200, text/event-stream, encoded' });
  });

  test('does not show the status of an earlier key', async () => {
    const onRequest = (socket: Socket, { all }: RawRequest) => {
      if (all('x-api-key')[0] === CANARY.key) socket.write(plainAnswer('401 No', [], 'no'));
      else socket.destroy();
    };
    const line = await lineOf(onRequest, BOTH_KEYS);
    expect(line).toMatchObject({ outcome: 'upstream_unreachable' });
    expect(line).not.toHaveProperty('upstreamStatus');
  });

  test('counts the bytes of an answer of the relay itself', async () => {
    pair = await startRelayAndUpstream(() => {});
    const { body } = await call(pair.relay.port, '/healthz');
    const line = await pair.relay.logLine(({ route }) => route === '/healthz');
    expect(line).toMatchObject({ bytes: body.length, outcome: 'ok' });
  });

  test('of a probe while draining says that the relay is not ready', async () => {
    pair = await startRelayAndUpstream(() => {});
    pair.relay.lifecycle.enter('draining');
    await call(pair.relay.port, '/readyz');
    const line = await pair.relay.logLine(({ route }) => route === '/readyz');
    expect(line).toMatchObject({ status: 503, outcome: 'not_ready' });
  });

  test('of a fault of the relay is an error, with the stack in a line of its own', async () => {
    pair = await startRelayAndUpstream(() => {});
    jest.spyOn(pair.relay.open, 'add').mockImplementation(() => {
      throw new Error('a fault of ours');
    });
    const headers = { Cookie: pair.cookie };
    const answer = await call(pair.relay.port, BOT_PATH, { method: 'POST', headers });
    const { requestId } = expectProblem(answer, 500, 'internal_error');
    const line = await pair.relay.logLine((each) => each.msg === 'request' && each.requestId === requestId);
    expect(line).toMatchObject({ level: 'error', status: 500, outcome: 'internal_error' });
    const fault = await pair.relay.logLine(({ msg }) => msg === 'fault');
    expect(fault).toMatchObject({ level: 'error', requestId, err: { message: 'a fault of ours' } });
  });

  test('of a session store that fails is a warning, with the stack in a line of its own', async () => {
    pair = await startRelayAndUpstream(() => {});
    const cause = new Error('the store is away');
    const away = new Problem('session_store_unavailable', 'Away.', { retryAfter: 1, cause });
    jest.spyOn(pair.relay.sessions, 'get').mockRejectedValue(away);
    await call(pair.relay.port, '/auth/session', { headers: { Cookie: pair.cookie } });
    const line = await pair.relay.logLine(({ route }) => route === '/auth/session');
    expect(line).toMatchObject({ level: 'warn', status: 503, outcome: 'session_store_unavailable' });
    const fault = await pair.relay.logLine(({ msg }) => msg === 'fault');
    expect(fault).toMatchObject({ requestId: line.requestId, err: { message: 'the store is away' } });
  });

  test('shows times in milliseconds with at most one decimal', async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD));
    const [client, pause] = [pair.ask(), () => new Promise((resolve) => setTimeout(resolve, 100))];
    await client.waitFor('\r\n\r\n');
    for (const part of ['data: 1\n\n', 'data: 2\n\n']) {
      await pause();
      pair.upstream.sockets[0]?.write(chunk(part));
      await client.waitFor(part);
    }
    pair.upstream.sockets[0]?.write(LAST_CHUNK);
    const line = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    const { durationMs, firstByteMs, slotWaitMs } = line as Record<string, number>;
    for (const ms of [durationMs, firstByteMs, slotWaitMs]) expect(String(ms)).toMatch(/^\d+(\.\d)?$/);
    expect(firstByteMs).toBeGreaterThan(90);
    expect((durationMs as number) - (firstByteMs as number)).toBeGreaterThan(90);
    expect(slotWaitMs).toBeLessThan(firstByteMs as number);
  });
});
