import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { ServerResponse } from 'node:http';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Response } from 'express';
import { type Pair, startPair } from '../support/pair.ts';
import { chunk, STREAM_HEAD } from '../support/raw-upstream.ts';

/** Where Node tells of every request that its server has. */
const REQUESTS = 'http.server.request.start';

let pair: Pair;
let res: Response | undefined;
const onRequest = (message: unknown) => {
  res = (message as { response: Response }).response;
};

beforeEach(async () => {
  pair = await startPair((socket) =>
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: a\n\n')])),
  );
  subscribe(REQUESTS, onRequest);
  await pair.ask().waitFor('data: a');
});
afterEach(async () => {
  unsubscribe(REQUESTS, onRequest);
  await pair.close();
});

test('an open stream keeps the message neither beside its response nor beside its request', () => {
  expect(res?.locals.bot).toBe('acme/helper');
  const held = [res, res?.req, res?.locals].flatMap((holder) => Object.values(holder ?? {}));
  expect(held.filter((value) => Buffer.isBuffer(value))).toEqual([]);
});

test('nobody stands around the response of an open stream', () => {
  expect(res?.end).toBe(ServerResponse.prototype.end);
  expect(res?.writeHead).toBe(ServerResponse.prototype.writeHead);
});
