import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from '@jest/globals';
import { dechunk } from '../harness/clients/raw-client.ts';
import { CANARY } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../harness/relay/relay-and-upstream.ts';
import { chunk, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const json = (eventType: string) => `data: ${JSON.stringify({ eventType, requestId: 'r' })}\n\n`;
const DONE = json('asgard.run.done');
const BEGUN = `retry: 1\n\n${json('asgard.run.init')}id: 7\n${json('kept')}`;
const BOTH_KEYS = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };
const fingerprint = (key: string) => createHash('sha256').update(key).digest('hex').slice(0, 8);

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** Starts a service that takes messages with any key, and refuses resumptions with all keys but `accepted`. */
async function start(status: number, accepted: string | undefined, environment: Record<string, string>) {
  pair = await startRelayAndUpstream((socket, { all }) => {
    if (all('last-event-id').length === 0) socket.end(`${STREAM_HEAD}fff\r\n${BEGUN}`);
    else if (all('x-api-key')[0] === accepted) socket.write(wholeStream(DONE));
    else socket.write(plainAnswer(`${status} No`, ['WWW-Authenticate: leak'], 'leak'));
  }, environment);
}

async function ask() {
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.closed;
  return dechunk(client.text());
}

const keysAndIds = () =>
  pair.upstream.requests.map(({ all }) => [all('x-api-key'), all('last-event-id')].flat());
const logged = (message: string) => pair.relay.logs.filter(({ msg }) => msg === message);

describe.each([401, 403])('a stream whose resumption is answered %i', (status) => {
  test('goes on with the next key, in the same attempt, and later messages begin with that key', async () => {
    await start(status, CANARY.secondKey, BOTH_KEYS);
    expect(await ask()).toMatchObject({ body: BEGUN + DONE, complete: true });
    const first = [[CANARY.key], [CANARY.key, '7'], [CANARY.secondKey, '7']];
    expect(keysAndIds()).toEqual(first);
    const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
    const { requestId } = line;
    expect(line).toMatchObject({ outcome: 'ok', resumptions: 1 });
    expect(logged('stream resumption')).toMatchObject([{ requestId, attempt: 1, outcome: 'resumed' }]);
    const keyFingerprint = fingerprint(CANARY.key);
    expect(logged('upstream key rejected')).toMatchObject([{ requestId, level: 'warn', keyFingerprint }]);
    expect(logged('upstream key accepted')).toMatchObject([
      { keyFingerprint },
      { keyFingerprint: fingerprint(CANARY.secondKey) },
    ]);
    expect(await ask()).toMatchObject({ body: BEGUN + DONE });
    expect(keysAndIds()).toEqual([...first, [CANARY.secondKey], [CANARY.secondKey, '7']]);
  });

  test('ends truthfully if every key is refused, each after one try', async () => {
    await start(status, undefined, BOTH_KEYS);
    const { body, complete } = await ask();
    expect(complete).toBe(true);
    expect(body.slice(0, BEGUN.length)).toBe(BEGUN);
    expect(body.slice(BEGUN.length)).toMatch(/^event: error\ndata: .*"code":"upstream_stream_broken".*\n\n$/);
    expect(body).not.toContain('leak');
    expect(keysAndIds()).toEqual([[CANARY.key], [CANARY.key, '7'], [CANARY.secondKey, '7']]);
    expect(logged('stream resumption')).toMatchObject([
      { level: 'warn', attempt: 1, outcome: 'key_rejected', cause: `status ${status}` },
    ]);
    expect(logged('upstream key rejected')).toHaveLength(status === 401 ? 2 : 0);
    expect(pair.relay.held.bytes()).toBe(0);
  });
});

test('each key that is tried for a resumption takes a slot of the budget', async () => {
  const budget = { RATE_LIMIT: '3', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' };
  await start(401, CANARY.secondKey, { ...BOTH_KEYS, ...budget });
  expect(await ask()).toMatchObject({ body: BEGUN + DONE, complete: true });
  expect((await pair.relay.send(pair.cookie)).status).toBe(429);
  expect(pair.upstream.requests).toHaveLength(3);
});

test('a stream is resumed with the keys of now, if they were replaced since it began', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-keys-'));
  const file = join(folder, 'keys');
  writeFileSync(file, CANARY.key);
  try {
    pair = await startRelayAndUpstream(
      (socket, { all }) => {
        const isResumption = all('last-event-id').length > 0;
        socket.write(
          isResumption ? wholeStream(DONE) : Buffer.concat([Buffer.from(STREAM_HEAD), chunk(BEGUN)]),
        );
      },
      { UPSTREAM_API_KEYS: '', UPSTREAM_API_KEYS_FILE: file },
    );
    const client = pair.ask({ headers: ['Connection: close'] });
    await client.waitFor(BEGUN);
    writeFileSync(file, CANARY.secondKey);
    await until(() => pair.relay.logs.some(({ msg }) => String(msg).startsWith('reloaded')));
    pair.upstream.sockets[0]?.resetAndDestroy();
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ body: BEGUN + DONE, complete: true });
    expect(keysAndIds()).toEqual([[CANARY.key], [CANARY.secondKey, '7']]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
