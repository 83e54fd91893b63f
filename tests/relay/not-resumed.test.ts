import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import type { NOT_RESUMED } from '../../src/relay/message/break-causes.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  ANOTHER_INIT,
  answers,
  breaks,
  DELTA,
  DONE,
  INIT,
  KEPT,
  type Reply,
  SOON,
} from '../harness/service/broken-answers.ts';
import { STREAM_HEAD } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

interface Broken {
  /** What the service sends before the connection breaks. */
  readonly sent: string;
  readonly environment?: Record<string, string>;
  readonly body?: string;
  /** How it answers each resumption. */
  readonly resumed?: Reply;
}

async function start({ sent, environment = {}, resumed = answers('204 No Content') }: Broken) {
  pair = await startRelayAndUpstream((socket, request) => {
    if (request.all('last-event-id').length > 0) resumed(socket, request);
    else breaks(sent)(socket, request);
  }, environment);
}

/** The log line of a message whose stream breaks. */
async function lineOf({ body = '{}' }: Broken) {
  const client = pair.ask({ body, headers: ['Connection: close'] });
  await client.closed;
  const [, requestId] = /^x-request-id: (.+)\r$/im.exec(client.text()) ?? [];
  return pair.relay.logLine((line) => line.msg === 'request' && line.requestId === requestId);
}

const CASES: [(typeof NOT_RESUMED)[number], string, Broken][] = [
  ['off', 'resuming is off', { sent: INIT + KEPT, environment: { RESUME_UPSTREAM: 'off' } }],
  ['large_body', 'its message is large', { sent: INIT + KEPT, body: `{"a":"${'x'.repeat(65_536)}"}` }],
  ['no_id', 'it had no id', { sent: INIT + DELTA }],
  ['no_id', 'its last id is empty', { sent: `${INIT}${KEPT}id\n\n` }],
  ['bad_id', 'no header can carry its id', { sent: `${INIT}id: \u0001\n${KEPT.slice('id: 7\n'.length)}` }],
  ['unheld_event', 'a part of an event went down', { sent: `${INIT}${KEPT}data: ${'x'.repeat(300_000)}` }],
  ['unheld_event', 'a large event came after its id', { sent: `${KEPT}data: ${'x'.repeat(300_000)}\n\n` }],
  ['too_many_events', 'too much came after its id', { sent: INIT + KEPT + DELTA.repeat(1_025) }],
  ['attempts_failed', 'the service has nothing to resume', { sent: INIT + KEPT }],
];

describe('the log line of a stream that broke off', () => {
  test.each(CASES)('says %s if %s', async (why, _where, broken) => {
    await start(broken);
    const line = await lineOf(broken);
    expect(line).toMatchObject({ outcome: 'upstream_stream_broken', notResumed: why });
    expect(line.resumptions).toBe(why === 'attempts_failed' ? 1 : undefined);
  });

  test('says new_run if the service has run a message of the bot again, this one or one before', async () => {
    const broken = { sent: INIT + KEPT, resumed: breaks(ANOTHER_INIT) };
    await start(broken);
    expect(await lineOf(broken)).toMatchObject({ cause: 'new_run', notResumed: 'new_run', resumptions: 1 });
    const { cause, notResumed, resumptions } = await lineOf(broken);
    expect([cause, notResumed, resumptions]).toEqual(['ECONNRESET', 'new_run', undefined]);
  });

  test('says new_run if another message of the bot has met one during its pause', async () => {
    const [late, resumed] = [Promise.withResolvers<Socket>(), Promise.withResolvers<Socket>()];
    pair = await startRelayAndUpstream((socket, request) => {
      if (request.all('last-event-id').length > 0) return resumed.resolve(socket);
      if (String(request.body) === '{}') return breaks(SOON + INIT + KEPT)(socket, request);
      socket.write(`${STREAM_HEAD}fffff\r\nretry: 1000\n\n${INIT}${KEPT}`);
      late.resolve(socket);
    });
    const lateLine = lineOf({ sent: '', body: '{"late":true}' });
    const breaking = await late.promise;
    const line = lineOf({ sent: '' });
    const answering = await resumed.promise;
    // Both arrive together, so that the pause has no time to end between them.
    breaking.end();
    answering.end(`${STREAM_HEAD}fffff\r\n${ANOTHER_INIT}`);
    expect(await line).toMatchObject({ cause: 'new_run' });
    expect(await lateLine).toMatchObject({ cause: 'ECONNRESET', notResumed: 'new_run' });
    expect(pair.upstream.requests).toHaveLength(3);
  });

  test('says nothing of the kind if the stream was resumed', async () => {
    const broken = { sent: `${SOON}${INIT}${KEPT}`, resumed: breaks(DONE) };
    await start(broken);
    const line = await lineOf(broken);
    expect(line).toMatchObject({ outcome: 'ok', resumptions: 1 });
    expect(line).not.toHaveProperty('notResumed');
  });
});
