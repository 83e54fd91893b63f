import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type Pair, startPair } from '../support/pair.ts';
import { dechunk, type RawClient } from '../support/raw-client.ts';
import { CLOSE_DELIMITED_HEAD, chunk, STREAM_HEAD } from '../support/raw-upstream.ts';
import { expectNoCanary } from '../support/relay.ts';

const LENGTH_HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n';
const WHOLE = 'data: one\n\ndata: two\n\n';
const HALF = 'data: one\n\ndata: ha';
const WITH_ID = 'id: 7\ndata: one\n\n';

type Break = (socket: Socket, client: () => RawClient, sent: string) => Promise<void> | void;
const BREAKS: [name: string, breakOff: Break][] = [
  ['a FIN in the middle of a chunk', (socket, _, sent) => void socket.end(`${STREAM_HEAD}fff\r\n${sent}`)],
  ['a FIN before the announced length', (socket, _, sent) => void socket.end(LENGTH_HEAD + sent)],
  [
    'a bad chunk size',
    (socket, _, sent) => void socket.write(`${STREAM_HEAD}${chunk(sent)}leak-no-size\r\n`),
  ],
  [
    'a reset',
    async (socket, client, sent) => {
      socket.write(`${STREAM_HEAD}${chunk(sent)}`);
      // A reset overtakes what was not read yet.
      await client().waitFor(sent);
      socket.resetAndDestroy();
    },
  ],
];

let pair: Pair;
let client: RawClient;
afterEach(() => pair.close());

/** Lets the upstream send `sent` and break off; resolves once the client's connection is over. */
async function broken(breakOff: Break, sent: string, message: Parameters<Pair['ask']>[0] = {}) {
  pair = await startPair((socket) => breakOff(socket, () => client, sent));
  client = pair.ask(message);
  const { error } = await client.closed;
  const { outcome } = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
  expect(outcome).toBe('upstream_stream_broken');
  expect(client.text()).not.toMatch(/proxy|leak|127\.0\.0\.1/i);
  expectNoCanary(client.text());
  return { ...dechunk(client.text()), error };
}

/** The bytes of the error event that tells that the stream broke; of these fields and no others. */
function errorEvent(head: string): string {
  const requestId = /^x-request-id: (.+)$/im.exec(head)?.[1]?.trim();
  const detail = 'The answer broke off; what came before is not complete.';
  const location = { namespace: 'acme', workflowName: '', processorName: '', processorType: '' };
  const data = {
    type: 'about:blank',
    title: 'The stream of the bot service broke off',
    status: 502,
    code: 'upstream_stream_broken',
    detail,
    requestId,
    eventType: 'asgard.run.error',
    namespace: 'acme',
    botProviderName: 'helper',
    customChannelId: null,
    fact: { runError: { error: { message: detail, code: 'upstream_stream_broken', inner: '', location } } },
  };
  return `event: error\ndata: ${JSON.stringify(data)}\n\n`;
}

describe.each(BREAKS)('a stream that breaks off with %s', (_name, breakOff) => {
  test('ends with one error event and a clean end at an event boundary (S11)', async () => {
    const { head, body, complete } = await broken(breakOff, WHOLE, { headers: ['Connection: close'] });
    expect(body).toBe(WHOLE + errorEvent(head));
    expect(complete).toBe(true);
  });

  test('ends with one error event when nothing was sent yet (S11)', async () => {
    const { head, body, complete } = await broken(breakOff, ': hi\n', { headers: ['Connection: close'] });
    expect(body).toBe(`: hi\n${errorEvent(head)}`);
    expect(complete).toBe(true);
  });

  test.each([
    ['in the middle of an event', HALF],
    ['after a line of an event', 'data: one\n'],
    ['at an event boundary, if an id was seen', WITH_ID],
  ])('is cut %s (S11)', async (_where, sent) => {
    const { body, complete } = await broken(breakOff, sent);
    expect(body).toBe(sent);
    expect(complete).toBe(false);
  });
});

describe('a stream that ends with its connection', () => {
  const close: Break = (socket, _, sent) => void socket.end(CLOSE_DELIMITED_HEAD + sent);

  test('is cut if that is in the middle of an event (S11)', async () => {
    expect(await broken(close, HALF)).toMatchObject({ body: HALF, complete: false });
  });

  const reset: Break = async (socket, held, sent) => {
    socket.write(CLOSE_DELIMITED_HEAD + sent);
    await held().waitFor(sent);
    socket.resetAndDestroy();
  };

  test('has one error event and a clean end if that is a reset at an event boundary (S11)', async () => {
    const { head, body, complete } = await broken(reset, WHOLE, { headers: ['Connection: close'] });
    expect(body).toBe(WHOLE + errorEvent(head));
    expect(complete).toBe(true);
  });

  test.each([
    ['at an event boundary behind an id', WITH_ID],
    ['in the middle of an event', HALF],
  ])('is cut if that is a reset %s (S11)', async (_where, sent) => {
    expect(await broken(reset, sent)).toMatchObject({ body: sent, complete: false });
  });

  test('is complete if that is at an event boundary (S11)', async () => {
    pair = await startPair((socket) => close(socket, () => client, WHOLE));
    client = pair.ask({ headers: ['Connection: close'] });
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ body: WHOLE, complete: true });
    const { outcome } = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    expect(outcome).toBe('ok');
  });
});

test.each([
  ['a last chunk', `${STREAM_HEAD}${chunk(HALF)}0\r\n\r\n`],
  ['its announced length', LENGTH_HEAD.replace('9999', String(HALF.length)) + HALF],
])('a stream that ends with %s is complete, wherever that is', async (_end, bytes) => {
  pair = await startPair((socket) => socket.write(bytes));
  client = pair.ask({ headers: ['Connection: close'] });
  await client.closed;
  expect(dechunk(client.text())).toMatchObject({ body: HALF, complete: true });
  expect(await pair.relay.logLine(({ bot }) => bot === 'acme/helper')).toMatchObject({ outcome: 'ok' });
});

describe('an HTTP/1.0 client, for which the end of the connection is the end of the body,', () => {
  test.each(BREAKS)(
    'sees a reset if the stream breaks inside an event with %s (S11)',
    async (_, breakOff) => {
      const { error } = await broken(breakOff, HALF, { version: '1.0' });
      expect(error).toBe('ECONNRESET');
      expect(client.text()).toMatch(/\r\n\r\ndata: one\n\ndata: ha$/);
    },
  );

  test('sees a reset if the stream ends with its connection inside an event (S11)', async () => {
    const close: Break = (socket, _, sent) => void socket.end(CLOSE_DELIMITED_HEAD + sent);
    expect(await broken(close, HALF, { version: '1.0' })).toMatchObject({ error: 'ECONNRESET' });
  });

  test('sees an error event and no reset if the stream breaks at an event boundary (S11)', async () => {
    const breakOff: Break = (socket, _, sent) => void socket.end(`${STREAM_HEAD}fff\r\n${sent}`);
    const { head, error } = await broken(breakOff, WHOLE, { version: '1.0' });
    expect(error).toBeUndefined();
    expect(client.text()).toBe(`${head}\r\n\r\n${WHOLE}${errorEvent(head)}`);
  });
});
