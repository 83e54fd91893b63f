import { afterEach, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { MESSAGE } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

const SHAPES = ['/ns', '/generic/ns'];
const pathIn = (shape: string) => `${shape}/acme/bot-provider/helper/message/sse`;

let pair: RelayAndUpstream;
afterEach(() => pair.close());

async function start(environment: Record<string, string> = {}) {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), environment);
}

const send = (path: string) =>
  call(pair.relay.port, path, {
    method: 'POST',
    body: MESSAGE,
    headers: { Cookie: pair.cookie, 'Content-Type': 'application/json' },
  });

test.each(SHAPES)('a message in the shape %s goes upstream in that shape', async (shape) => {
  await start({ BASE_PATH: '/chat' });
  expect((await send(`/chat${pathIn(shape)}`)).body).toBe('data: 1\n\n');
  expect(pair.upstream.requests.map(({ requestLine }) => requestLine)).toEqual([
    `POST ${pathIn(shape)} HTTP/1.1`,
  ]);
});

test('both shapes share the budget of their bot', async () => {
  await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '3600000', RATE_MAX_WAIT_MS: '0' });
  expect((await send(pathIn('/ns'))).status).toBe(200);
  expectProblem(await send(pathIn('/generic/ns')), 429, 'rate_limited');
});
