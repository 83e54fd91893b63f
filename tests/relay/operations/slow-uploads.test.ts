import { createServer, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type UploadBody, uploadBody, uploadBoundary } from '../../../src/relay/operations/upload-body.ts';
import { FORM_TYPE, filePart, formOf, textPart } from '../../harness/clients/forms.ts';
import { operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { sleep } from '../../harness/clock/sleep.ts';
import { startRelay } from '../../harness/relay/relay.ts';

const MAX_BYTES = 20_971_520;
const open: (Server | Socket)[] = [];
afterEach(() => {
  for (const each of open.splice(0)) {
    if ('closeAllConnections' in each) each.closeAllConnections();
    if ('close' in each) each.close();
    else each.destroy();
  }
});

/** Sends the beginning of an upload of `length` bytes to a server that reads it with `times`. */
async function uploadWith(
  times: { stallMs: number; wholeMs: number },
  beginning: Buffer,
  length = 10_000_000,
) {
  const arrived = Promise.withResolvers<IncomingMessage>();
  const server = createServer((req) => arrived.resolve(req));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => {});
  open.push(server, client);
  const head = ['POST / HTTP/1.1', 'Host: a', `Content-Type: ${FORM_TYPE}`, `Content-Length: ${length}`];
  client.write(`${head.join('\r\n')}\r\n\r\n`);
  client.write(beginning);
  const req = await arrived.promise;
  const boundary = uploadBoundary(req.headers, MAX_BYTES);
  const upload: UploadBody = uploadBody(req, { boundary, times, maxBytes: MAX_BYTES, upstreamId: () => 'u' });
  return { upload, client };
}
const endOf = ({ done }: UploadBody) =>
  done.then(
    () => 'done',
    (reason: { code: string }) => reason.code,
  );
const PART = formOf([filePart(Buffer.alloc(300_000))], '');

describe('an upload that stalls is cut', () => {
  test('because of its client', async () => {
    const { upload } = await uploadWith({ stallMs: 50, wholeMs: 60_000 }, PART);
    upload.stream.resume();
    expect(await endOf(upload)).toBe('request_timeout');
    expect(upload.stream.destroyed).toBe(true);
  });

  test('because of the bot service', async () => {
    const { upload } = await uploadWith({ stallMs: 50, wholeMs: 60_000 }, PART);
    expect(await endOf(upload)).toBe('upstream_timeout');
  });

  test('after the whole time, though bytes come', async () => {
    const { upload, client } = await uploadWith({ stallMs: 60_000, wholeMs: 200 }, PART);
    upload.stream.resume();
    const drip = setInterval(() => client.write('x'), 20);
    expect(await endOf(upload)).toBe('request_timeout');
    clearInterval(drip);
  });
});

test('an upload is not cut while the bot service slowly takes what has arrived', async () => {
  const form = formOf([filePart(Buffer.alloc(200_000)), textPart('c1')]);
  const { upload, client } = await uploadWith(
    { stallMs: 800, wholeMs: 60_000 },
    form.subarray(0, 200_000),
    form.length,
  );
  let isOver = false;
  const end = endOf(upload).finally(() => {
    isOver = true;
  });
  // What has arrived is taken in steps. The rest comes only then.
  for (let taken = 0; taken < 199_000 && !isOver; ) {
    await sleep(500);
    taken += (upload.stream.read() as Buffer | null)?.length ?? 0;
  }
  client.write(form.subarray(200_000));
  upload.stream.resume();
  expect(await end).toBe('done');
});

test('an upload is read no faster than the bot service reads it', async () => {
  const sockets: Socket[] = [];
  const service = createTcpServer((socket) => void sockets.push(socket.pause().on('error', () => {})));
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  const relay = await startRelay(`http://127.0.0.1:${(service.address() as AddressInfo).port}`, {
    OPERATIONS: 'message,files',
  });
  const cookie = await relay.signIn();
  const { path } = operationRequest(operationAt('POST blob'));
  const client = connect(relay.port, '127.0.0.1').on('error', () => {});
  const [before, behind] = [formOf([filePart('')], '').subarray(0, -2), formOf([textPart('c1')])];
  const length = before.length + MAX_BYTES + 2 + behind.length;
  const head = [`POST ${path} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${cookie}`];
  client.write(
    `${[...head, `Content-Type: ${FORM_TYPE}`, `Content-Length: ${length}`].join('\r\n')}\r\n\r\n`,
  );
  client.write(before);
  const piece = Buffer.alloc(65_536);
  // Until nothing is taken any more: all buffers on the way are full.
  let sent = 0;
  for (let idle = 0; idle < 10 && sent < MAX_BYTES; ) {
    if (client.writableLength > 0) {
      await sleep(20);
      idle += 1;
      continue;
    }
    idle = 0;
    client.write(piece);
    sent += piece.length;
  }
  expect(sent).toBeGreaterThan(500_000);
  expect(sent).toBeLessThan(MAX_BYTES);
  client.destroy();
  for (const socket of sockets) socket.destroy();
  await relay.close();
  await new Promise((resolve) => service.close(resolve));
});
