import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from './support/call.ts';
import { type Pair, startPair, until } from './support/pair.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from './support/raw-upstream.ts';
import { CANARY, MESSAGE } from './support/relay.ts';

let pair: Pair;
// A relay whose scan finds something fails to close in the end.
afterEach(() => pair.upstream.close());

/** A relay whose bot service writes `parts` into its stream, which passes unchanged whatever it holds. */
async function stream(...parts: string[]): Promise<void> {
  pair = await startPair((socket) => {
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(parts[0] ?? '')]));
    // The rest follows on its own, so that it is another write of the relay.
    setTimeout(() => {
      socket.write(Buffer.concat([...parts.slice(1).map(chunk), Buffer.from(LAST_CHUNK)]));
    }, 100);
  });
  const client = pair.ask({ headers: ['Connection: close'], body: MESSAGE });
  await client.closed;
}

describe('the scan of what test relays answer', () => {
  test.each([
    ['in one piece', [`data: ${CANARY.key}\n\n`]],
    ['behind much else', [`data: ${'x'.repeat(100_000)}\n\n`, `data: ${CANARY.sessionSecret}\n\n`]],
  ])('finds a secret %s', async (_how, parts) => {
    await stream(...parts);
    await expect(pair.close()).rejects.toThrow('a secret has shown in an answer');
  });

  test('finds one that is split over two reads of the client', async () => {
    const [head, tail] = [`data: ${CANARY.key.slice(0, 9)}`, `${CANARY.key.slice(9)}\n\n`];
    pair = await startPair((socket) => {
      // With no chunks, nothing stands between the two halves.
      socket.write(`HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n${head}`);
      setTimeout(() => socket.end(tail), 100);
    });
    const client = pair.ask({ version: '1.0', body: MESSAGE });
    await until(() => client.text().includes(CANARY.key));
    await expect(pair.close()).rejects.toThrow('a secret has shown in an answer');
  });

  test('passes what holds none, also the text of the message', async () => {
    await stream(`data: ${CANARY.text}\n\n`, 'data: b\n\n');
    await pair.close();
  });
});

test('a call whose answer holds a secret fails', async () => {
  pair = await startPair((socket) => {
    const body = `{"key":"${CANARY.key}"}`;
    socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  });
  await expect(call(pair.upstream.port, '/')).rejects.toThrow('a secret has shown in an answer');
  await pair.close();
});
