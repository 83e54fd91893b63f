import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { type Answer, type Call, call } from '../harness/clients/call.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
beforeEach(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD), {
    RATE_LIMIT: '2',
    RATE_WINDOW_MS: '600000',
    MAX_STREAMS_PER_USER: '1',
    MAX_BODY_BYTES: '1000',
  });
});
afterEach(() => pair.close());

const JSON_TYPE = { 'Content-Type': 'application/json' };

/** Posts a message that is correct except for `how`. */
const send = ({ headers, ...how }: Call = {}, path = BOT_PATH): Promise<Answer> =>
  call(pair.relay.port, path, {
    method: 'POST',
    body: MESSAGE,
    ...how,
    headers: { Cookie: pair.cookie, ...JSON_TYPE, ...headers },
  });

/** Opens a stream that stays open until the test ends it at its upstream socket. */
async function open() {
  const client = pair.ask({ headers: [`X-Request-Id: stream-number-${pair.upstream.requests.length}`] });
  await client.waitFor('\r\n\r\n');
  return client;
}

/** The number of free slots in the answer `text`. */
const left = (text: string) => /^RateLimit: .*;r=(\d+)/m.exec(text)?.[1];

describe('a message that is refused before it waits for a slot', () => {
  test.each<[string, number, Call, string]>([
    ['without a session', 401, { headers: { Cookie: '' } }, BOT_PATH],
    ['from another site', 403, { headers: { 'Sec-Fetch-Site': 'cross-site' } }, BOT_PATH],
    ['with another type', 415, { headers: { 'Content-Type': 'text/plain' } }, BOT_PATH],
    ['that is not JSON', 400, { body: '{' }, BOT_PATH],
    ['that is too large', 413, { body: `"${'x'.repeat(1000)}"` }, BOT_PATH],
    ['to an unknown bot', 404, {}, BOT_PATH.replace('helper', 'nobody')],
    ['with another method', 405, { method: 'PUT' }, BOT_PATH],
  ])('%s (%i) takes no slot', async (_why, status, how, path) => {
    for (let n = 0; n < 3; n += 1) expect((await send(how, path)).status).toBe(status);
    expect(left((await open()).text())).toBe('1');
    expect(pair.upstream.sockets).toHaveLength(1);
  });

  test('because too many streams are open takes no slot', async () => {
    await open();
    for (let n = 0; n < 3; n += 1) {
      const answer = await send();
      expect([answer.status, JSON.parse(answer.body).code]).toEqual([429, 'too_many_streams']);
      expect(answer.headers).not.toHaveProperty('ratelimit');
    }
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await pair.relay.logLine(({ requestId }) => requestId === 'stream-number-0');
    expect(left((await open()).text())).toBe('0');
  });
});
