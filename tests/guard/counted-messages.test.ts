import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { ask, operationAt } from '../support/operation-requests.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../support/relay-and-upstream.ts';

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => void socket.write(wholeStream('data: {"n":1}\n\n')), {
    OPERATIONS: 'message,chat',
    CLIENT_LIMIT_PER_SESSION: '2',
  });
});
afterAll(() => pair.close());

let requests: object[] = [];
const note = (message: unknown) => void requests.push((message as { request: object }).request);
beforeEach(() => {
  requests = [];
  subscribe('http.server.request.start', note);
});
afterEach(() => void unsubscribe('http.server.request.start', note));

test.each([
  ['sends a message', 'POST message/sse', 200, false],
  ['asks for the stream of a message', 'GET message/run', 410, true],
  ['is over the limit', 'POST message/sse', 429, false],
])(
  'only what sends a message does without express-rate-limit: a request that %s',
  async (_what, line, status, isCounted) => {
    expect((await ask(pair, operationAt(line))).status).toBe(status);
    // express-rate-limit leaves its answer in a property of the request.
    const passed = requests.filter((request) => 'rateLimit session' in request);
    expect(passed).toHaveLength(isCounted ? 1 : 0);
  },
);
