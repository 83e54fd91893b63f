import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from '@jest/globals';
import express, { type Response } from 'express';
import { carryStream } from '../../src/relay/message/carry-stream.ts';
import type { Healer } from '../../src/relay/message/healing.ts';
import type { AnswerReader, UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { type RawClient, rawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { UNHEALED } from '../harness/relay/unhealed.ts';

const KEPT = 'id: 1\ndata: kept\n\n';
/** More than the buffers between the relay and a client hold, and all of it before the id. */
const MUCH = Buffer.concat([Buffer.alloc(9 << 20, 'data: a\n\n'), Buffer.from(KEPT)]);
const EVENT = Buffer.from('data: b\n\n');

let server: Server;
let client: RawClient;
afterEach(async () => {
  client.socket.destroy();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

/** An answer whose body comes for as long as it is read: each of `chunks` in a turn of the event loop, then its end. */
function answerOf(chunks: Iterable<Buffer>, end: (reader: AnswerReader) => void) {
  const state = { sent: 0, paused: true, isRead: false, closed: 0 };
  const rest = chunks[Symbol.iterator]();
  let reader: AnswerReader | undefined;
  const next = () => {
    if (state.paused) return;
    const { value, done } = rest.next();
    if (done) return reader && end(reader);
    state.sent++;
    reader?.data(value);
    setImmediate(next);
  };
  const resume = () => {
    if (!state.paused) return;
    state.paused = false;
    setImmediate(next);
  };
  const answer: UpstreamAnswer = {
    ...{ status: 200, headers: { 'transfer-encoding': 'chunked' }, hasError: () => false },
    close() {
      state.closed++;
    },
    read(given) {
      state.isRead = true;
      reader = given;
      resume();
    },
    pause() {
      state.paused = true;
    },
    resume,
  };
  return { answer, state };
}

/** Carries `answer` to a client that reads nothing yet; `resume` is the service's answer to its resumption. */
async function carry(answer: UpstreamAnswer, resume: Healer['resume']): Promise<Response> {
  const healer: Healer = { isForbidden: () => false, resume, firstEvent() {}, recordOutcome() {} };
  const carried = new Promise<Response>((resolve) => {
    const app = express();
    app.get('/', (_req, res) => {
      res.flushHeaders();
      const identity = { requestId: 'the-id', bot: { namespace: 'acme', botProviderName: 'helper' } };
      const heartbeats = { watch() {}, unwatch() {} };
      void carryStream({
        ...UNHEALED,
        ...{ answer, res, identity, heartbeats, stream: { bytes: 0 }, log: res.locals },
        ...{ signal: new AbortController().signal, healer: () => healer },
      });
      resolve(res);
    });
    server = createServer(app);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  client = rawClient(port, 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  client.socket.pause();
  return carried;
}

test('a resumed stream is not read before the client has room, though nothing of it may go down yet', async () => {
  const first = answerOf([MUCH], (reader) => reader.broken('ECONNRESET'));
  // The whole stream is on its way already when the client is full.
  first.answer.pause = () => {};
  // It repeats the event that went down, so that nothing of it is written that the client could hold back.
  const again = answerOf([Buffer.from(KEPT), ...Array<Buffer>(1_000).fill(EVENT)], (reader) => reader.end());
  let isResumed = false;
  const res = await carry(first.answer, async () => {
    isResumed = true;
    return again.answer;
  });
  await until(() => isResumed);
  for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
  expect([res.writableNeedDrain, again.state.sent]).toEqual([true, 0]);
  client.socket.resume();
  await client.closed;
  expect(client.text().split(String(EVENT))).toHaveLength(1 + 1_000);
});

test('an answer to a resumption that comes when the client has left is closed unread', async () => {
  const first = answerOf([Buffer.from(KEPT)], (reader) => reader.broken('ECONNRESET'));
  const late = answerOf([EVENT], (reader) => reader.end());
  let isResumed = false;
  await carry(first.answer, (_resumption, signal) => {
    isResumed = true;
    return new Promise((resolve) => signal.addEventListener('abort', () => resolve(late.answer)));
  });
  await until(() => isResumed);
  client.socket.destroy();
  await until(() => late.state.closed > 0 || late.state.isRead);
  expect(late.state).toMatchObject({ closed: 1, isRead: false });
});
