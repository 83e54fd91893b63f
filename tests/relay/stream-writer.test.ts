import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, expect, jest, test } from '@jest/globals';
import express, { type Response } from 'express';
import { streamWriter } from '../../src/relay/message/stream-writer.ts';
import { dechunk, type RawClient, rawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';

let server: Server;
let client: RawClient;
afterEach(async () => {
  client.socket.destroy();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

/** Opens a response whose headers are sent, and records all later writes to its socket. */
async function open(version = '1.1') {
  const opened = new Promise<Response>((resolve) => {
    server = createServer(
      express().get('/', (_req, res) => {
        res.flushHeaders();
        resolve(res);
      }),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  client = rawClient(port, `GET / HTTP/${version}\r\nHost: a\r\n\r\n`);
  const res = await opened;
  await client.waitFor('\r\n\r\n');
  const onFull = jest.fn();
  const writes = jest.spyOn(res.socket as Socket, 'write');
  return { res, writes, onFull, writer: streamWriter(res, onFull) };
}

const body = () => client.text().split('\r\n\r\n').slice(1).join('\r\n\r\n');

test('chunks that arrive together are sent in one write, each with its framing', async () => {
  const { res, writer, writes, onFull } = await open();
  writer.write(Buffer.from('data: a\n\n'));
  writer.write(Buffer.from('data: some more than that\n\n'));
  await client.waitFor('than that\n\n\r\n');
  expect(body()).toBe('9\r\ndata: a\n\n\r\n1b\r\ndata: some more than that\n\n\r\n');
  expect(writes).toHaveBeenCalledTimes(1);
  res.end();
  await until(() => dechunk(client.text()).complete);
  expect(onFull).not.toHaveBeenCalled();
});

test('an empty chunk does not end the stream', async () => {
  const { res, writer } = await open();
  writer.write(Buffer.alloc(0));
  writer.flush();
  writer.write(Buffer.from('data: a\n\n'));
  writer.flush();
  res.end();
  await until(() => dechunk(client.text()).complete);
  expect(dechunk(client.text()).body).toBe('data: a\n\n');
});

test('flushed data is sent before later writes to the response', async () => {
  const { res, writer } = await open();
  writer.write(Buffer.from('data: a\n\n'));
  writer.flush();
  res.end('data: b\n\n');
  await until(() => dechunk(client.text()).complete);
  expect(dechunk(client.text()).body).toBe('data: a\n\ndata: b\n\n');
});

test.each([4000, 4090, 4096, 70_000])('%i bytes arrive unchanged between small chunks', async (length) => {
  const { res, writer } = await open();
  const large = 'x'.repeat(length);
  for (const text of ['small\n', large, 'small\n', large]) writer.write(Buffer.from(text));
  await until(() => dechunk(client.text()).body.length === 2 * (length + 6));
  writer.write(Buffer.from(large));
  writer.flush();
  res.end();
  await until(() => dechunk(client.text()).complete);
  expect(dechunk(client.text()).body).toBe(`small\n${large}small\n${large}${large}`);
});

test('onFull is called when the client reads too slowly, and the response drains later', async () => {
  const { res, writer, onFull } = await open();
  client.socket.pause();
  const event = Buffer.from(`data: ${'x'.repeat(1000)}\n\n`);
  let written = 0;
  while (onFull.mock.calls.length === 0) {
    writer.write(event);
    writer.flush();
    written++;
    await new Promise(setImmediate);
  }
  expect(res.writableNeedDrain).toBe(true);
  const drained = new Promise((resolve) => res.once('drain', resolve));
  client.socket.resume();
  await drained;
  expect(res.writableNeedDrain).toBe(false);
  res.end();
  await until(() => dechunk(client.text()).complete);
  expect(dechunk(client.text()).body).toBe(String(event).repeat(written));
});

test('an HTTP/1.0 client gets no chunked framing', async () => {
  const { res, writer } = await open('1.0');
  writer.write(Buffer.from('data: a\n\n'));
  writer.flush();
  res.end();
  await client.closed;
  expect(body()).toBe('data: a\n\n');
});

test('nothing is written for a client that has left', async () => {
  const { res, writer, writes, onFull } = await open();
  writer.write(Buffer.from('data: a\n\n'));
  res.destroy();
  await new Promise(setImmediate);
  expect(writes).not.toHaveBeenCalled();
  expect(onFull).not.toHaveBeenCalled();
});

test('a client that has closed its side causes no clientError', async () => {
  const { res, writer, writes } = await open();
  const failed = jest.fn();
  server.on('clientError', failed);
  res.socket?.end();
  writer.write(Buffer.from('data: a\n\n'));
  await new Promise(setImmediate);
  expect(writes).not.toHaveBeenCalled();
  expect(failed).not.toHaveBeenCalled();
});
