import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { filePart, formOf, textPart } from '../harness/clients/forms.ts';
import { ask, operationAt, operationRequest } from '../harness/clients/operation-requests.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { until } from '../harness/clock/until.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { plainAnswer } from '../harness/service/raw-upstream.ts';

const UPLOAD = operationAt('POST blob');
const DOWNLOAD = operationAt('GET channel-home/download');

let pair: RelayAndUpstream;
afterEach(() => pair.close());

async function start(onRequest: (socket: Socket) => void) {
  pair = await startRelayAndUpstream(onRequest, {
    ...{ METRICS_PORT: '9090', OPERATIONS: 'message,files', MAX_UPLOAD_BYTES: '100000' },
  });
}

async function counts() {
  const text = await pair.relay.metricsText();
  const of = (direction: string) => total(text, 'bot_relay_transferred_bytes_total', { direction });
  return { up: of('up'), down: of('down') };
}

/** Resolves when the counts differ from `before`. */
async function changed(before: Awaited<ReturnType<typeof counts>>) {
  let now = before;
  await until(async () => {
    now = await counts();
    return now.up !== before.up || now.down !== before.down;
  });
  return now;
}

const NONE = { up: 0, down: 0 };
const upload = (bytes: number) =>
  ask(pair, UPLOAD, { body: formOf([filePart(Buffer.alloc(bytes)), textPart('c1')]) });

describe('the bytes of files', () => {
  test('are counted by direction, without those around them', async () => {
    let isUpload = true;
    await start((socket) =>
      socket.write(
        isUpload ? jsonAnswer('200 OK', { blobId: 'b1' }) : plainAnswer('200 OK', [], 'x'.repeat(70_000)),
      ),
    );
    expect(await pair.relay.metricsText()).toMatch(
      /^bot_relay_transferred_bytes_total\{direction="up"\} 0$/m,
    );
    expect((await upload(80_000)).status).toBe(200);
    expect(await changed(NONE)).toEqual({ up: 80_000, down: 0 });
    isUpload = false;
    expect((await ask(pair, DOWNLOAD)).status).toBe(200);
    expect(await changed({ up: 80_000, down: 0 })).toEqual({ up: 80_000, down: 70_000 });
  });

  test('are counted as far as they went if a transfer breaks off or is refused', async () => {
    await start((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n${'x'.repeat(40)}`);
    });
    const { path } = operationRequest(DOWNLOAD);
    const head = [`GET ${path} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${pair.cookie}`];
    const client = rawClient(pair.relay.port, `${head.join('\r\n')}\r\n\r\n`);
    await client.waitFor('x'.repeat(40));
    pair.upstream.sockets[0]?.destroy();
    await client.closed;
    expect(await changed(NONE)).toEqual({ up: 0, down: 40 });
    expect((await upload(120_000)).status).toBe(413);
    const { up } = await changed({ up: 0, down: 40 });
    expect(up).toBeGreaterThan(0);
    expect(up).toBeLessThanOrEqual(100_000);
  });

  test('of streams and of JSON are not counted', async () => {
    await start((socket) => socket.write(jsonAnswer('404 No', { error: 'none' })));
    expect((await ask(pair, DOWNLOAD)).status).toBe(404);
    await (await pair.relay.send(pair.cookie)).text();
    // The sign-in is the third request.
    await until(async () => total(await pair.relay.metricsText(), 'bot_relay_requests_total') === 3);
    expect(await counts()).toEqual(NONE);
  });
});
