import { afterEach, describe, expect, test } from '@jest/globals';
import { dechunk } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

/** Bytes that would change if a relay decoded, split or trimmed them. */
const NASTY = [
  '\ufeff: a comment\n:\n\n',
  'id: 7\nretry: 10\nevent: message\ndata: 😀 👩‍👩‍👧 é\ndata:\ndata\n\n',
  'data: crlf\r\n\r\ndata: bare cr\r\rdata: \ufeff \0 trailing  \n\n',
  ':\r\nunknown: field\nID: 8\n\n\n\n',
].join('');

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** Sends `pieces`, each as one chunk; returns the body that the client received. */
async function carried(pieces: readonly Buffer[]): Promise<Buffer> {
  pair = await startRelayAndUpstream((socket) => {
    socket.write(STREAM_HEAD);
    for (const piece of pieces) socket.write(chunk(piece));
    socket.write(LAST_CHUNK);
  });
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.closed;
  const { body, complete } = dechunk(client.text());
  expect(complete).toBe(true);
  return Buffer.from(body, 'latin1');
}

describe('a stream passes', () => {
  test('chunk by chunk, each before the next is sent', async () => {
    const events = [1, 2, 3, 4, 5].map((n) => `data: event ${n}\n\n`);
    pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD));
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    for (const event of events) {
      pair.upstream.sockets[0]?.write(chunk(event));
      await client.waitFor(event);
    }
    pair.upstream.sockets[0]?.write(LAST_CHUNK);
    await client.waitFor(LAST_CHUNK);
    expect(dechunk(client.text())).toMatchObject({ body: events.join(''), complete: true });
  });

  test('byte for byte when it is split at every byte', async () => {
    const bytes = Buffer.from(NASTY);
    const body = await carried([...bytes].map((byte) => Buffer.from([byte])));
    expect(body.toString('latin1')).toBe(bytes.toString('latin1'));
  });

  test('byte for byte with an event of 1 MiB', async () => {
    const bytes = Buffer.from(`data: ${'😀\u2028x'.repeat(128 * 1024)}\n\n${NASTY}`);
    expect((await carried([bytes])).equals(bytes)).toBe(true);
  });
});
