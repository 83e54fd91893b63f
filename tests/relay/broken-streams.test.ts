import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { dechunk, type RawClient } from '../harness/clients/raw-client.ts';
import { expectNoCanary } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { CLOSE_DELIMITED_HEAD, chunk, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const LENGTH_HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999999\r\n\r\n';
const WHOLE = 'data: one\n\ndata: two\n\n';
const HALF = 'data: one\n\ndata: ha';
const WITH_ID = 'id: 7\ndata: one\n\n';
/** More than the relay holds of one event. */
const LARGE = `data: ${'x'.repeat(70_000)}`;

type Break = (socket: Socket, client: () => RawClient, sent: string) => Promise<void> | void;
const BREAKS: [name: string, breakOff: Break][] = [
  ['a FIN in the middle of a chunk', (socket, _, sent) => void socket.end(`${STREAM_HEAD}fffff\r\n${sent}`)],
  ['a FIN before the announced length', (socket, _, sent) => void socket.end(LENGTH_HEAD + sent)],
  [
    'a bad chunk size',
    (socket, _, sent) => void socket.write(`${STREAM_HEAD}${chunk(sent)}leak-no-size\r\n`),
  ],
  [
    'a reset',
    async (socket, client, sent) => {
      socket.write(`${STREAM_HEAD}${chunk(sent)}`);
      // A reset discards data that was not read yet.
      await client().waitFor(sent.slice(0, sent.lastIndexOf('\n\n') + 2));
      socket.resetAndDestroy();
    },
  ],
];

let pair: RelayAndUpstream;
let client: RawClient;
afterEach(() => pair.close());

/** Lets the upstream send `sent` and break off; resolves once the client's connection is over. */
async function broken(breakOff: Break, sent: string, message: Parameters<RelayAndUpstream['ask']>[0] = {}) {
  pair = await startRelayAndUpstream((socket) => breakOff(socket, () => client, sent), {
    RESUME_UPSTREAM: 'off',
  });
  client = pair.ask({ headers: ['Connection: close'], ...message });
  const { error } = await client.closed;
  const { outcome } = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
  expect(outcome).toBe('upstream_stream_broken');
  expect(client.text()).not.toMatch(/proxy|leak|127\.0\.0\.1/i);
  expectNoCanary(client.text());
  return { ...dechunk(client.text()), error };
}

/** The error event of a broken stream, with exactly these fields. */
function errorEvent(head: string): string {
  const requestId = /^x-request-id: (.+)$/im.exec(head)?.[1]?.trim();
  const detail = 'The answer broke off; it is not complete.';
  const location = { namespace: 'acme', workflowName: '', processorName: '', processorType: '' };
  const data = {
    type: 'about:blank',
    title: 'The stream of the bot service broke off',
    status: 502,
    code: 'upstream_stream_broken',
    detail,
    retryable: false,
    maybeStarted: true,
    requestId,
    message: detail,
    eventType: 'asgard.run.error',
    namespace: 'acme',
    botProviderName: 'helper',
    customChannelId: null,
    fact: { runError: { error: { message: detail, code: 'upstream_stream_broken', inner: '', location } } },
  };
  return `event: error\ndata: ${JSON.stringify(data)}\n\n`;
}

/** What is sent before the break, and what of it goes down. */
const PLACES: [place: string, sent: string, down: string][] = [
  ['at an event boundary', WHOLE, WHOLE],
  ['at an event boundary after an id', WITH_ID, WITH_ID],
  ['before the first event', ': hi\n', ': hi\n'],
  ['in the middle of a line', HALF, 'data: one\n\n'],
  ['after a line of an event', 'data: one\n', ''],
  ['in the middle of an event after an id', `${WITH_ID}id: 8\ndata: tw`, WITH_ID],
  ['in the middle of a comment', `${WHOLE}: com`, WHOLE],
];

describe.each(BREAKS)('a stream that breaks off with %s', (name, breakOff) => {
  const places = name === 'a reset' ? PLACES.filter(([, , down]) => down.includes('\n\n')) : PLACES;

  test.each(places)('ends with one error event and a clean end %s', async (_place, sent, down) => {
    const { head, body, complete } = await broken(breakOff, sent);
    expect(body).toBe(down + errorEvent(head));
    expect(complete).toBe(true);
  });

  test.each([
    ['', LARGE],
    ['after an id', WITH_ID + LARGE],
  ])('is cut inside an event that is too large to hold %s', async (_place, sent) => {
    const hold: Break = async (socket, held, bytes) => {
      if (name !== 'a reset') return breakOff(socket, held, bytes);
      socket.write(`${STREAM_HEAD}${chunk(bytes)}`);
      await until(() => dechunk(held().text()).body === bytes);
      socket.resetAndDestroy();
    };
    const { body, complete } = await broken(hold, sent);
    expect(body).toBe(sent);
    expect(complete).toBe(false);
  });
});

const runEvent = (type: string, requestId: string) =>
  `data: {"eventType":"asgard.run.${type}","requestId":"${requestId}"}\n\n`;

test('a resumption that begins another run is not cut if a large event behind its start has not gone down', async () => {
  const first = `retry: 1\nid: 1\n${runEvent('init', 'a')}`;
  pair = await startRelayAndUpstream((socket) => {
    const resumes = pair.upstream.requests.length > 1;
    socket.end(STREAM_HEAD + chunk(resumes ? runEvent('init', 'b') + LARGE : first));
  });
  client = pair.ask({ headers: ['Connection: close'] });
  await client.closed;
  const { head, body, complete } = dechunk(client.text());
  expect([body, complete]).toEqual([first + errorEvent(head), true]);
});

test('a large event that breaks off after the end of its run is cut', async () => {
  const sent = runEvent('init', 'a') + runEvent('done', 'a') + LARGE;
  const { body, complete } = await broken((socket) => void socket.end(STREAM_HEAD + chunk(sent)), sent);
  expect([body, complete]).toEqual([sent, false]);
});

describe('a stream that ends with its connection', () => {
  const close: Break = (socket, _, sent) => void socket.end(CLOSE_DELIMITED_HEAD + sent);

  test('has one error event and a clean end if it ends in the middle of an event', async () => {
    const { head, body, complete } = await broken(close, HALF);
    expect(body).toBe(`data: one\n\n${errorEvent(head)}`);
    expect(complete).toBe(true);
  });

  test('is cut if it ends inside an event that is too large to hold', async () => {
    expect(await broken(close, LARGE)).toMatchObject({ body: LARGE, complete: false });
  });

  test('has one error event and a clean end if it ends with a reset at an event boundary', async () => {
    const reset: Break = async (socket, held, sent) => {
      socket.write(CLOSE_DELIMITED_HEAD + sent);
      await held().waitFor(sent);
      socket.resetAndDestroy();
    };
    const { head, body, complete } = await broken(reset, WHOLE);
    expect(body).toBe(WHOLE + errorEvent(head));
    expect(complete).toBe(true);
  });

  test('is complete if it ends at an event boundary', async () => {
    pair = await startRelayAndUpstream((socket) => close(socket, () => client, WHOLE));
    client = pair.ask({ headers: ['Connection: close'] });
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ body: WHOLE, complete: true });
    const { outcome } = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    expect(outcome).toBe('ok');
  });
});

describe('an HTTP/1.0 client, for which the end of the connection is the end of the body,', () => {
  test.each(BREAKS.slice(0, 3))('sees a reset if a large event breaks with %s', async (_, breakOff) => {
    const { error } = await broken(breakOff, LARGE, { version: '1.0' });
    expect(error).toBe('ECONNRESET');
    expect(client.text().endsWith(LARGE)).toBe(true);
  });

  test.each([
    ['at an event boundary', WHOLE, WHOLE],
    ['in the middle of an event', HALF, 'data: one\n\n'],
  ])('sees an error event and no reset if the stream breaks %s', async (_place, sent, down) => {
    const breakOff: Break = (socket, _, bytes) => void socket.end(`${STREAM_HEAD}fffff\r\n${bytes}`);
    const { head, error } = await broken(breakOff, sent, { version: '1.0' });
    expect(error).toBeUndefined();
    expect(client.text()).toBe(`${head}\r\n\r\n${down}${errorEvent(head)}`);
  });
});

test('a resumed stream that ends cleanly within the repetition of what went down is broken, and resumed again', async () => {
  const answers = [
    'id: 7\nretry: 1\n\ndata: b\n\ndata: c\n\n',
    'data: b\n\n',
    'data: b\n\ndata: c\n\ndata: d\n\n',
  ];
  pair = await startRelayAndUpstream((socket) => {
    const n = pair.upstream.requests.length;
    if (n > 1) socket.write(wholeStream(answers[n - 1] ?? ''));
    else socket.end(`${STREAM_HEAD}${chunk(answers[0] ?? '')}`);
  }, {});
  const answer = await pair.relay.send(pair.cookie);
  expect(await answer.text()).toBe(`${answers[0]}data: d\n\n`);
});
