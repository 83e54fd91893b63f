import { createHash } from 'node:crypto';
import { afterEach, describe, expect, test } from '@jest/globals';
import { wholeStream } from '../support/raw-upstream.ts';
import { CANARY, expectNoCanary, MESSAGE } from '../support/relay.ts';
import { plainAnswer, type RelayAndUpstream, startRelayAndUpstream } from '../support/relay-and-upstream.ts';

const BOTH_KEYS = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };
const fingerprint = (key: string) => createHash('sha256').update(key).digest('hex').slice(0, 8);

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** Sends a message to an upstream that refuses every key but `accepted`. */
async function sendWithKeys(status: number, accepted: string, environment = {}) {
  const refusal = plainAnswer(`${status} No`, ['WWW-Authenticate: leak', 'Content-Type: text/plain'], 'leak');
  const stream = wholeStream('data: a\n\n');
  pair = await startRelayAndUpstream((socket, request) => {
    socket.write(request.all('x-api-key')[0] === accepted ? stream : refusal);
  }, environment);
  const response = await pair.relay.send(pair.cookie);
  const keys = pair.upstream.requests.map(({ all }) => all('x-api-key'));
  return { response, text: await response.text(), keys };
}

function rejectedFingerprints(): unknown[] {
  return pair.relay.logs
    .filter(({ msg }) => msg === 'upstream key rejected')
    .map(({ keyFingerprint }) => keyFingerprint);
}

describe.each([401, 403])('if the bot service rejects keys with %d,', (status) => {
  test('a client gets 502 for the only key, not 401', async () => {
    const { response, text, keys } = await sendWithKeys(status, 'none');
    expect(response.status).toBe(502);
    expect(JSON.parse(text)).toMatchObject({
      status: 502,
      code: 'upstream_key_rejected',
      retryable: 'new message',
    });
    expect(JSON.parse(text)).not.toHaveProperty('maybeStarted');
    expect(response.headers.get('www-authenticate')).toBeNull();
    expect(text).not.toContain('leak');
    expectNoCanary(text);
    expect(keys).toEqual([[CANARY.key]]);
    expect(rejectedFingerprints()).toEqual([fingerprint(CANARY.key)]);
  });

  test('the second key is sent with the same body', async () => {
    const { response, text, keys } = await sendWithKeys(status, CANARY.secondKey, {
      ...BOTH_KEYS,
      CHANNELS: 'shared',
    });
    expect(response.status).toBe(200);
    expect(text).toBe('data: a\n\n');
    expect(keys).toEqual([[CANARY.key], [CANARY.secondKey]]);
    expect(pair.upstream.requests.map(({ body }) => String(body))).toEqual([MESSAGE, MESSAGE]);
    expect(rejectedFingerprints()).toEqual([fingerprint(CANARY.key)]);
    const line = pair.relay.logs.find(({ msg }) => msg === 'upstream key rejected');
    expect(line).toMatchObject({ level: 'warn', requestId: response.headers.get('x-request-id') });
  });

  test('each of two keys is tried once', async () => {
    const { text, keys } = await sendWithKeys(status, 'none', BOTH_KEYS);
    expect(JSON.parse(text)).toMatchObject({ code: 'upstream_key_rejected' });
    expect(keys).toEqual([[CANARY.key], [CANARY.secondKey]]);
    expect(rejectedFingerprints()).toEqual([CANARY.key, CANARY.secondKey].map(fingerprint));
  });
});

test('a second key is not tried for any other failure', async () => {
  const refuse = plainAnswer('500 No', []);
  pair = await startRelayAndUpstream((socket) => socket.write(refuse), BOTH_KEYS);
  const response = await pair.relay.send(pair.cookie);
  expect(response.status).toBe(502);
  expect(pair.upstream.requests).toHaveLength(1);
});
