import { randomBytes } from 'node:crypto';
import { Agent, createServer, get } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, Socket } from 'node:net';
import { expect, test } from '@jest/globals';
import { readInPlace } from '../../../src/relay/operations/operation-proxy.ts';

const listen = async (server: { listen: (port: number, host: string, done: () => void) => unknown }) =>
  new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));

test('every connection has a buffer of 64 KiB of its own', () => {
  const lengths: unknown[] = [];
  const buffers = new Set<unknown>();
  const agent = new Agent();
  agent.createConnection = (options) => {
    const { buffer } = (options as { onread?: { buffer?: Buffer } }).onread ?? {};
    lengths.push(buffer?.length);
    buffers.add(buffer);
    return new Socket();
  };
  const { createConnection } = readInPlace(agent);
  for (let opened = 0; opened < 2; opened += 1) createConnection.call(agent, { port: 1 });
  expect([lengths, buffers.size]).toEqual([[65_536, 65_536], 2]);
});

test('what a reader keeps of its answers stays as it came, on a connection that is used again', async () => {
  const files = [randomBytes(3_000_000), randomBytes(3_000_000)];
  let asked = 0;
  const server = createServer((_req, res) => res.end(files[asked++]));
  await listen(server);
  const { port } = server.address() as AddressInfo;
  const agent = readInPlace(new Agent({ keepAlive: true }));
  const sockets = new Set<Socket>();
  const received: Buffer[] = [];
  for (const _file of files) {
    const kept: Buffer[] = [];
    await new Promise<void>((resolve) => {
      get({ port, host: '127.0.0.1', agent }, (answer) => {
        sockets.add(answer.socket);
        answer.on('data', (bytes: Buffer) => {
          kept.push(bytes);
          // A reader that pauses gets the rest all the same.
          if (kept.length % 10 === 0) {
            answer.pause();
            setTimeout(() => answer.resume(), 2);
          }
        });
        answer.on('end', resolve);
      });
    });
    received.push(Buffer.concat(kept));
    await new Promise(setImmediate);
  }
  expect(sockets.size).toBe(1);
  expect(received.map((bytes, n) => bytes.equals(files[n] as Buffer))).toEqual([true, true]);
  agent.destroy();
  server.close();
});

test('an idle connection on which something comes is closed', async () => {
  const connections: Socket[] = [];
  const server = createTcpServer((socket) => {
    connections.push(socket);
    socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
  });
  await listen(server);
  const agent = readInPlace(new Agent({ keepAlive: true }));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => {
    get({ port, host: '127.0.0.1', agent }, (answer) => answer.resume().on('end', resolve));
  });
  await new Promise(setImmediate);
  const [connection] = connections as [Socket];
  const closed = new Promise((resolve) => connection.once('close', resolve));
  connection.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil');
  await closed;
  agent.destroy();
  server.close();
});
