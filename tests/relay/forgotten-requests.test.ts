import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { ServerResponse } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, expect, test } from '@jest/globals';
import { OPERATION_GROUPS } from '../../src/bots/operation-groups.ts';
import { ask, operationAt } from '../support/operation-requests.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { CANARY } from '../support/relay.ts';
import { plainAnswer, type RelayAndUpstream, startRelayAndUpstream } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';
import { jsonAnswer } from '../support/suspend.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

let pair: RelayAndUpstream;
const answers: WeakRef<ServerResponse>[] = [];
/** Notes each answer that a server of this process begins, without keeping it. */
const note = (message: unknown) => {
  const { request, response } = message as { request: { url: string }; response: ServerResponse };
  if (request.url.includes('/acme/')) answers.push(new WeakRef(response));
};
afterEach(async () => {
  unsubscribe('http.server.request.start', note);
  await pair.close();
});

const JSON_ANSWER = jsonAnswer('200 OK', { n: 1 });
const FILE = plainAnswer('200 OK', ['Content-Type: text/plain'], 'text');
const STREAM = wholeStream('data: {"n":1}\n\n');
const REFUSED = plainAnswer('401 No', []);
const BROKEN = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{';

test.each([
  ['an operation', 'GET channel/metadata', [JSON_ANSWER], 200],
  ['an operation that was sent with two keys', 'GET channel/metadata', [REFUSED, JSON_ANSWER], 200],
  ['an operation whose answer broke off', 'GET channel/metadata', [BROKEN], 502],
  ['an upload', 'POST blob', [JSON_ANSWER], 200],
  ['a download', 'GET cwd/download', [FILE], 200],
  ['a live stream', 'GET message/sse', [STREAM], 200],
  ['a message', 'POST message/sse', [STREAM], 200],
])('nothing is kept of %s that is over', async (_what, line, replies, status) => {
  let at = 0;
  pair = await startRelayAndUpstream(
    (socket) => {
      const reply = replies[at++ % replies.length] ?? '';
      if (reply === BROKEN) socket.end(reply);
      else socket.write(reply);
    },
    { OPERATIONS: OPERATION_GROUPS.join(), UPSTREAM_API_KEYS: `${CANARY.secondKey},${CANARY.key}` },
  );
  answers.length = 0;
  subscribe('http.server.request.start', note);
  for (let n = 0; n < 3; n += 1) expect((await ask(pair, operationAt(line))).status).toBe(status);
  expect(answers).toHaveLength(3);
  for (let tries = 0; tries < 50 && answers.some((answer) => answer.deref()); tries += 1) {
    await sleep(20);
    collectGarbage();
  }
  expect(answers.filter((answer) => answer.deref())).toHaveLength(0);
});
