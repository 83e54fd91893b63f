import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../../harness/clients/call.ts';
import { until } from '../../harness/clock/until.ts';
import { CANARY, MESSAGE } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
// The `close` of a relay fails if its scan finds a secret.
afterEach(() => pair.upstream.close());

/** Starts a relay whose bot service writes `parts` into its stream, which is carried unchanged. */
async function stream(...parts: string[]): Promise<void> {
  pair = await startRelayAndUpstream((socket) => {
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(parts[0] ?? '')]));
    // The rest is sent separately, so that the relay writes it separately.
    setTimeout(() => {
      socket.write(Buffer.concat([...parts.slice(1).map(chunk), Buffer.from(LAST_CHUNK)]));
    }, 100);
  });
  const client = pair.ask({ headers: ['Connection: close'], body: MESSAGE });
  await client.closed;
}

describe('the scan of the answers of test relays', () => {
  test.each([
    ['in one piece', [`data: ${CANARY.key}\n\n`]],
    ['behind much else', [`data: ${'x'.repeat(100_000)}\n\n`, `data: ${CANARY.sessionSecret}\n\n`]],
  ])('finds a secret %s', async (_how, parts) => {
    await stream(...parts);
    await expect(pair.close()).rejects.toThrow('a secret has shown in an answer');
  });

  test('finds a secret that is split over two reads of the client', async () => {
    const [head, tail] = [`data: ${CANARY.key.slice(0, 9)}`, `${CANARY.key.slice(9)}\n\n`];
    pair = await startRelayAndUpstream((socket) => {
      // Without chunked coding, nothing is between the two halves.
      socket.write(`HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n${head}`);
      setTimeout(() => socket.end(tail), 100);
    });
    const client = pair.ask({ version: '1.0', body: MESSAGE });
    await until(() => client.text().includes(CANARY.key));
    await expect(pair.close()).rejects.toThrow('a secret has shown in an answer');
  });

  test('accepts answers without a secret, also the text of the message', async () => {
    await stream(`data: ${CANARY.text}\n\n`, 'data: b\n\n');
    await pair.close();
  });
});

test('a call whose answer contains a secret fails', async () => {
  pair = await startRelayAndUpstream((socket) => {
    const body = `{"key":"${CANARY.key}"}`;
    socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  });
  await expect(call(pair.upstream.port, '/')).rejects.toThrow('a secret has shown in an answer');
  await pair.close();
});
