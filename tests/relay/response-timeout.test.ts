import { afterEach, describe, expect, test } from '@jest/globals';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../support/raw-upstream.ts';
import { expectNoCanary } from '../support/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../support/relay-and-upstream.ts';

const TIMEOUT_MS = 300;

let pair: RelayAndUpstream;
afterEach(() => pair.close());

describe('a bot service', () => {
  test.each([
    ['sends nothing', ''],
    ['sends half of its headers', 'HTTP/1.1 200 OK\r\nContent-Type: text/event-'],
    ['sends only an interim response', 'HTTP/1.1 103 Early Hints\r\nLink: </leak>\r\n\r\n'],
  ])('that %s times out, and its request is aborted', async (_name, bytes) => {
    let aborted = false;
    pair = await startRelayAndUpstream(
      (socket) => {
        socket.write(bytes);
        socket.on('close', () => {
          aborted = true;
        });
      },
      { UPSTREAM_RESPONSE_TIMEOUT_MS: String(TIMEOUT_MS) },
    );
    const startedAt = performance.now();
    const response = await pair.relay.send(pair.cookie);
    const took = performance.now() - startedAt;
    const text = await response.text();
    expect(response.status).toBe(504);
    expect(JSON.parse(text)).toMatchObject({ status: 504, code: 'upstream_timeout' });
    expect(text).not.toMatch(new RegExp(`http|127\\.0\\.0\\.1|leak|${pair.upstream.port}`));
    expectNoCanary(text);
    expect(took).toBeGreaterThan(TIMEOUT_MS * 0.9);
    await until(() => aborted);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('that sends the body of a refusal too slowly times out, and its request is aborted', async () => {
    let aborted = false;
    pair = await startRelayAndUpstream(
      (socket) => {
        socket.write(
          'HTTP/1.1 422 No\r\nContent-Type: application/json\r\nContent-Length: 8000\r\n\r\n{"leak":"',
        );
        const timer = setInterval(() => socket.write('x'), 20);
        socket.on('close', () => {
          clearInterval(timer);
          aborted = true;
        });
      },
      { UPSTREAM_RESPONSE_TIMEOUT_MS: String(TIMEOUT_MS) },
    );
    const response = await pair.relay.send(pair.cookie);
    const text = await response.text();
    expect(response.status).toBe(504);
    expect(JSON.parse(text)).toMatchObject({ status: 504, code: 'upstream_timeout' });
    expect(text).not.toContain('leak');
    await until(() => aborted);
  });

  test('that answered in time may be silent for longer than the timeout', async () => {
    pair = await startRelayAndUpstream(
      (socket) => {
        socket.write(STREAM_HEAD);
        const end = Buffer.concat([chunk('data: late\n\n'), Buffer.from(LAST_CHUNK)]);
        setTimeout(() => socket.write(end), TIMEOUT_MS * 2);
      },
      { UPSTREAM_RESPONSE_TIMEOUT_MS: String(TIMEOUT_MS) },
    );
    const response = await pair.relay.send(pair.cookie);
    expect(await response.text()).toBe('data: late\n\n');
  });
});
