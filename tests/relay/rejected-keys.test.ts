import { createHash } from 'node:crypto';
import { afterEach, describe, expect, test } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { CANARY, expectNoCanary, MESSAGE } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
} from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

const BOTH_KEYS = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };
const fingerprint = (key: string) => createHash('sha256').update(key).digest('hex').slice(0, 8);

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** Starts a service that answers a message by its key, and refuses every other key so. */
async function start(answers: Readonly<Record<string, string | Buffer>>, other: string, environment = {}) {
  pair = await startRelayAndUpstream(
    (socket, request) => void socket.write(answers[request.all('x-api-key')[0] ?? ''] ?? other),
    environment,
  );
}

async function send() {
  const response = await pair.relay.send(pair.cookie);
  return { response, text: await response.text() };
}

const receivedKeys = () => pair.upstream.requests.flatMap(({ all }) => all('x-api-key'));
const refusal = (status: number) =>
  plainAnswer(`${status} No`, ['WWW-Authenticate: leak', 'Content-Type: text/plain'], 'leak');
const STREAM = wholeStream('data: a\n\n');

function rejectedFingerprints(): unknown[] {
  return pair.relay.logs
    .filter(({ msg }) => msg === 'upstream key rejected')
    .map(({ keyFingerprint }) => keyFingerprint);
}

test.each([401, 403])(
  'if a key is rejected with %d, the second one is sent with the same body',
  async (status) => {
    await start({ [CANARY.secondKey]: STREAM }, refusal(status), { ...BOTH_KEYS, CHANNELS: 'shared' });
    const { response, text } = await send();
    expect(response.status).toBe(200);
    expect(text).toBe('data: a\n\n');
    expect(receivedKeys()).toEqual([CANARY.key, CANARY.secondKey]);
    expect(pair.upstream.requests.map(({ body }) => String(body))).toEqual([MESSAGE, MESSAGE]);
    expect(rejectedFingerprints()).toEqual([fingerprint(CANARY.key)]);
    const line = pair.relay.logs.find(({ msg }) => msg === 'upstream key rejected');
    expect(line).toMatchObject({ level: 'warn', requestId: response.headers.get('x-request-id') });
    // The next message begins with the key that was accepted.
    await send();
    expect(receivedKeys().slice(2)).toEqual([CANARY.secondKey]);
  },
);

describe('if the bot service rejects every key with 401,', () => {
  test('a client gets an error of status 502 for the only key, not 401', async () => {
    await start({}, refusal(401));
    const { response, text } = await send();
    expect(response.status).toBe(200);
    expect(errorEventIn(text)).toMatchObject({
      status: 502,
      code: 'upstream_key_rejected',
      retryable: 'new message',
    });
    expect(errorEventIn(text)).not.toHaveProperty('maybeStarted');
    expect(response.headers.get('www-authenticate')).toBeNull();
    expect(text).not.toContain('leak');
    expectNoCanary(text);
    expect(receivedKeys()).toEqual([CANARY.key]);
    expect(rejectedFingerprints()).toEqual([fingerprint(CANARY.key)]);
  });

  test('each of two keys is tried once', async () => {
    await start({}, refusal(401), BOTH_KEYS);
    expect(errorEventIn((await send()).text)).toMatchObject({ code: 'upstream_key_rejected', status: 502 });
    expect(receivedKeys()).toEqual([CANARY.key, CANARY.secondKey]);
    expect(rejectedFingerprints()).toEqual([CANARY.key, CANARY.secondKey].map(fingerprint));
  });
});

describe('if the bot service answers a message with 403,', () => {
  const THREE_KEYS = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey},third-key-of-this-test` };

  test('one other key is tried, and then the service has refused the message, and not the keys', async () => {
    await start({}, jsonAnswer('403 No', { error: { text: `${CANARY.key} may not say this` } }), THREE_KEYS);
    const { response, text } = await send();
    expect(response.status).toBe(200);
    expect(errorEventIn(text)).toMatchObject({
      code: 'upstream_refused',
      status: 403,
      retryable: false,
      upstream: { error: { text: expect.stringContaining('may not say this') } },
    });
    expect(errorEventIn(text)).not.toHaveProperty('maybeStarted');
    expectNoCanary(text);
    expect(receivedKeys()).toEqual([CANARY.key, CANARY.secondKey]);
    expect(rejectedFingerprints()).toEqual([]);
    // The next message begins with the same key.
    await send();
    expect(receivedKeys()[2]).toBe(CANARY.key);
  });

  test('the only key stays good', async () => {
    await start({}, refusal(403));
    const { response, text } = await send();
    expect(response.status).toBe(200);
    expect(errorEventIn(text)).toMatchObject({ status: 403, code: 'upstream_refused' });
    expect(response.headers.get('www-authenticate')).toBeNull();
    expect(text).not.toContain('leak');
    expect(receivedKeys()).toEqual([CANARY.key]);
    expect(rejectedFingerprints()).toEqual([]);
  });

  test('it has refused the message, too, if the other key is rejected with 401', async () => {
    await start({ [CANARY.secondKey]: refusal(401) }, refusal(403), THREE_KEYS);
    const { response, text } = await send();
    expect(response.status).toBe(200);
    expect(errorEventIn(text)).toMatchObject({ status: 403, code: 'upstream_refused' });
    expect(receivedKeys()).toEqual([CANARY.key, CANARY.secondKey]);
    expect(rejectedFingerprints()).toEqual([fingerprint(CANARY.secondKey)]);
  });

  test('after a key that it has rejected with 401, one more key is tried', async () => {
    await start({ [CANARY.key]: refusal(401), [CANARY.secondKey]: refusal(403) }, String(STREAM), THREE_KEYS);
    expect((await send()).response.status).toBe(200);
    expect(rejectedFingerprints()).toEqual([CANARY.key, CANARY.secondKey].map(fingerprint));
  });
});

test('a second key is not tried for any other failure', async () => {
  const refuse = plainAnswer('500 No', []);
  pair = await startRelayAndUpstream((socket) => socket.write(refuse), BOTH_KEYS);
  const response = await pair.relay.send(pair.cookie);
  const failure = errorEventIn(await response.text());
  expect(failure).toMatchObject({ code: 'upstream_bad_response', status: 502, maybeStarted: true });
  expect(pair.upstream.requests).toHaveLength(1);
});
