import type { Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { Problem, type ProblemCode } from '../../src/errors.ts';
import { TOO_LONG } from '../../src/relay/message/deadlines.ts';
import { call, parseAnswer } from '../harness/clients/call.ts';
import { errorEventIn, expectErrorEvent } from '../harness/clients/error-event.ts';
import { dechunk, type RawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { type FaultProxy, faultProxy } from '../harness/faults/fault-proxy.ts';
import { expectNoCanary, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { inPieces, naiveItems, splits, streams } from '../harness/service/event-streams.ts';
import { CLOSE_DELIMITED_HEAD, chunk, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const LENGTH_HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999999\r\n\r\n';
const json = (eventType: string, requestId = 'r') => `data: ${JSON.stringify({ eventType, requestId })}\n\n`;
const INIT = json('asgard.run.init');
const RUN = `${INIT}id: 7\n${json('kept')}${json('asgard.run.done')}`;
const WITH_ID = 'id: 7\ndata: one\n\n';
/** More than the relay holds of one event. */
const LARGE = `data: ${'x'.repeat(70_000)}`;

/** A pair of which nothing is resumed. */
let pair: RelayAndUpstream;
/** The fault proxy between the service of the pair and another relay. */
let proxy: FaultProxy;
let behindProxy: TestRelay;
let proxyCookie: string;
/** What the service does with the next message. */
let serve: (socket: Socket) => unknown;
/** The service's end of it. */
let service: Socket;
let messages = 0;
beforeAll(async () => {
  const off = { RESUME_UPSTREAM: 'off' };
  pair = await startRelayAndUpstream((socket) => {
    service = socket;
    serve(socket);
  }, off);
  proxy = await faultProxy(pair.upstream.url);
  behindProxy = await startRelay(proxy.url, off);
  proxyCookie = await behindProxy.signIn();
});
afterAll(async () => {
  await behindProxy.close();
  proxy.close();
  await pair.close();
});
function ask(message: { version?: string; cookie?: string } = {}): { client: RawClient; id: string } {
  const id = `stream-${String(++messages).padStart(6, '0')}`;
  // Each is a message of its own: the same bytes would join its run.
  const body = JSON.stringify({ n: messages });
  return {
    id,
    client: pair.ask({ ...message, body, headers: ['Connection: close', `X-Request-Id: ${id}`] }),
  };
}
const lineOf = (id: string) =>
  pair.relay.logLine(({ msg, requestId }) => msg === 'request' && requestId === id);

/** How a stream is ended early, what its client is told, and with which status. */
interface End {
  readonly begins?: (sent: string) => string;
  readonly ends: (cookie: string) => unknown;
  readonly code?: ProblemCode;
  readonly status?: number;
}
const inChunks = (sent: string) => `${STREAM_HEAD}${chunk(sent)}`;
const endAll = (problem: Problem) => () => pair.relay.parts.open.endAll(problem);
const ENDS: Record<string, End> = {
  'a FIN in the middle of a chunk': {
    begins: (sent) => `${STREAM_HEAD}fffff\r\n${sent}`,
    ends: () => service.end(),
  },
  'a FIN before the announced length': { begins: (sent) => LENGTH_HEAD + sent, ends: () => service.end() },
  'a bad chunk size': { ends: () => service.write('leak-no-size\r\n') },
  'a reset': { ends: () => service.resetAndDestroy() },
  'a reset of a body without a length': {
    begins: (sent) => CLOSE_DELIMITED_HEAD + sent,
    ends: () => service.resetAndDestroy(),
  },
  'its deadline': { ends: endAll(TOO_LONG), code: 'deadline_exceeded', status: 504 },
  'a shutdown': { ends: endAll(new Problem('draining', 'Over.')), code: 'answer_lost' },
  'a logout': {
    ends: (Cookie) => call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie } }),
    code: 'session_ended',
    status: 401,
  },
};

/** What is sent before the end, and what of it goes down. */
const PLACES: [place: string, sent: string, down: string][] = [
  ['at an event boundary', 'data: one\n\ndata: two\n\n', 'data: one\n\ndata: two\n\n'],
  ['at an event boundary after an id', WITH_ID, WITH_ID],
  ['before the first event', ': hi\n', ': hi\n'],
  ['in the middle of a line of a run', `${INIT}data: ha`, INIT],
  ['after a line of an event', 'data: one\n', ''],
  ['in the middle of an event after an id', `${WITH_ID}id: 8\ndata: tw`, WITH_ID],
  ['in the middle of a comment', `${WITH_ID}: com`, WITH_ID],
];
/** Inside an event that is too large to hold. */
const LARGE_PLACES = ['', WITH_ID, RUN].map((first) => first + LARGE);

/** Lets the service send `sent`, and ends the stream once `down` has come; resolves when the connection is over. */
async function ended({ begins = inChunks, ends }: End, sent: string, down: string, version = '1.1') {
  const cookie = await pair.relay.signIn();
  const requests = pair.upstream.requests.length;
  serve = (socket) => socket.write(begins(sent));
  const { client, id } = ask({ version, cookie });
  await client.waitFor('\r\n\r\n');
  const bodyNow = () =>
    version === '1.1' ? dechunk(client.text()).body : client.text().split('\r\n\r\n')[1];
  await until(() => bodyNow() === down);
  await ends(cookie);
  const { error } = await client.closed;
  const text = client.text();
  expect(text).not.toMatch(/proxy|leak|127\.0\.0\.1/i);
  expectNoCanary(text);
  expect(pair.upstream.requests).toHaveLength(requests + 1);
  await until(() => service.destroyed);
  const { outcome } = await lineOf(id);
  const complete = version === '1.1' ? dechunk(text).complete : error === undefined;
  return { text, body: bodyNow() ?? '', complete, outcome, error };
}

describe.each(Object.entries(ENDS))('a stream that is ended by %s', (_name, end) => {
  const { code = 'upstream_stream_broken', status = 502 } = end;

  test.each(PLACES)('has one error event and a clean end %s', async (_place, sent, down) => {
    for (const version of ['1.1', '1.0']) {
      const { text, body, complete, outcome } = await ended(end, sent, down, version);
      expect(body.slice(0, down.length)).toBe(down);
      const answer = { ...parseAnswer(text), body: body.slice(down.length) };
      const retryable = code === 'session_ended' ? expect.anything() : false;
      expectErrorEvent(answer, status, code, { maybeStarted: true, retryable: retryable as false });
      expect([complete, outcome]).toEqual([true, code]);
    }
  });

  test.each(LARGE_PLACES)('is cut inside an event that is too large to hold (%#)', async (sent) => {
    for (const version of ['1.1', '1.0']) {
      const { body, complete, outcome, error } = await ended(end, sent, sent, version);
      expect([body === sent, complete, outcome]).toEqual([true, false, code]);
      // The end of the connection would be the end of the body.
      if (version === '1.0') expect(error).toBe('ECONNRESET');
    }
  });

  test('is complete after the end of its run', async () => {
    const { body, complete, outcome } = await ended(end, RUN, RUN);
    expect([body, complete, outcome]).toEqual([RUN, true, 'ok']);
  });
});

test('a stream that breaks off has an error event for new clients and for those in the field', async () => {
  const { text, body } = await ended(ENDS['a reset'] as End, INIT, INIT);
  const detail = 'The answer broke off; it is not complete.';
  const location = { namespace: 'acme', workflowName: '', processorName: '', processorType: '' };
  expect(errorEventIn(body.slice(INIT.length))).toEqual({
    type: '/docs/problems.md#upstream_stream_broken',
    ...{ title: 'The stream of the bot service broke off', status: 502 },
    ...{ code: 'upstream_stream_broken', detail, retryable: false, maybeStarted: true },
    requestId: /^x-request-id: (.+)$/im.exec(text)?.[1]?.trim(),
    ...{ message: detail, eventType: 'asgard.run.error', namespace: 'acme', botProviderName: 'helper' },
    customChannelId: null,
    fact: { runError: { error: { message: detail, code: 'upstream_stream_broken', inner: '', location } } },
  });
});

describe('a stream that ends with its connection', () => {
  const close: End = { begins: (sent) => CLOSE_DELIMITED_HEAD + sent, ends: () => service.end() };

  test.each([
    ['is complete at an event boundary', 'data: one\n\n', 'data: one\n\n', 'ok', true],
    [
      'is broken in the middle of an event',
      'data: one\n\ndata: ha',
      'data: one\n\n',
      'upstream_stream_broken',
      true,
    ],
    ['is cut inside an event that is too large to hold', LARGE, LARGE, 'upstream_stream_broken', false],
  ])('%s', async (_title, sent, down, code, isWhole) => {
    const { body, complete, outcome } = await ended(close, sent, down);
    const ending = code !== 'ok' && isWhole ? /^event: error\n/ : /^$/;
    expect([body.startsWith(down), complete, outcome]).toEqual([true, isWhole, code]);
    expect(body.slice(down.length)).toMatch(ending);
  });
});

test('a stream that ends well in a large event after its run is as it came', async () => {
  serve = (socket) => socket.write(wholeStream(RUN + LARGE));
  const { client, id } = ask();
  await client.closed;
  expect(dechunk(client.text())).toMatchObject({ body: RUN + LARGE, complete: true });
  expect((await lineOf(id)).outcome).toBe('ok');
});

/** An answer, and after which part of its bytes the connection is lost. */
const lost = fc.tuple(
  streams,
  splits,
  fc.nat({ max: 10_000 }).map((n) => n / 10_000),
);

test('any stream that is cut anywhere goes down as far as a plain parser sees whole events, with one error event', async () => {
  await fc.assert(
    fc.asyncProperty(lost, async ([stream, lengths, place]) => {
      const pieces = inPieces(stream, lengths).filter(({ length }) => length > 0);
      const answer = Buffer.concat([
        Buffer.from(STREAM_HEAD),
        ...pieces.map(chunk),
        Buffer.from('0\r\n\r\n'),
      ]);
      const at = Math.floor(place * answer.length);
      serve = (socket) => socket.write(answer);
      proxy.cutAfter(at);
      const response = await behindProxy.send(proxyCookie, { body: JSON.stringify({ n: ++messages }) });
      const body = Buffer.from(await response.arrayBuffer());
      const isHead = at < STREAM_HEAD.length;
      const came = Buffer.from(isHead ? '' : dechunk(answer.toString('latin1', 0, at)).body, 'latin1');
      const { items, bomBytes, isHalfBom } = naiveItems(came);
      const down = isHalfBom ? 0 : (items.at(-1)?.to ?? bomBytes);
      if (at === answer.length) return expect(body).toEqual(stream);
      expect(body.subarray(0, down)).toEqual(came.subarray(0, down));
      const { code } = errorEventIn(body.toString('utf8', down));
      if (!isHead) expect(code).toBe('upstream_stream_broken');
    }),
    { numRuns: 200, endOnFailure: true },
  );
});

test('a fault of the relay ends a stream with an error event, a line in the log, and no resumption', async () => {
  const healing = await startRelay(pair.upstream.url);
  const requests = pair.upstream.requests.length;
  serve = (socket) => socket.write(inChunks('id: 1\ndata: a\n\n'));
  const response = await healing.send(await healing.signIn());
  const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
  let text = '';
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += Buffer.from(part.value).toString();
    if (!text.endsWith('data: a\n\n')) continue;
    jest.spyOn(Buffer, 'allocUnsafeSlow').mockImplementation(() => {
      throw new TypeError('a fault');
    });
    service.write(chunk('data: half'));
  }
  jest.restoreAllMocks();
  expect(text).toMatch(/^id: 1\ndata: a\n\nevent: error\ndata: \{.*"code":"internal_error".*\}\n\n$/);
  expect(await healing.logLine(({ msg }) => msg === 'fault')).toMatchObject({ err: { type: 'TypeError' } });
  const line = await healing.logLine(({ bot }) => bot === 'acme/helper');
  expect(line).toMatchObject({ outcome: 'internal_error', level: 'error' });
  expect(pair.upstream.requests).toHaveLength(requests + 1);
  await healing.close();
});
