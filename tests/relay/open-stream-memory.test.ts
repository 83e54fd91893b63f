import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { ServerResponse } from 'node:http';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Response } from 'express';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

/** The channel on which Node.js reports every request to a server. */
const REQUESTS = 'http.server.request.start';

let pair: RelayAndUpstream;
let res: Response | undefined;
const onRequest = (message: unknown) => {
  res = (message as { response: Response }).response;
};

beforeEach(async () => {
  pair = await startRelayAndUpstream((socket) =>
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: a\n\n')])),
  );
  subscribe(REQUESTS, onRequest);
  await pair.ask().waitFor('data: a');
});
afterEach(async () => {
  unsubscribe(REQUESTS, onRequest);
  await pair.close();
});

test('an open stream keeps the body of its message neither on the response nor on the request', () => {
  expect(res?.locals.bot).toBe('acme/helper');
  const held = [res, res?.req, res?.locals].flatMap((holder) => Object.values(holder ?? {}));
  expect(held.filter((value) => Buffer.isBuffer(value))).toEqual([]);
});

test('the methods of the response of an open stream are not wrapped', () => {
  expect(res?.end).toBe(ServerResponse.prototype.end);
  expect(res?.writeHead).toBe(ServerResponse.prototype.writeHead);
});
