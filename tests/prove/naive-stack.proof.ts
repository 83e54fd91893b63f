import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { createInterface, type Interface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { messageConnection } from '../../bench/support/message-connection.ts';
import { PEERS, type RunningPeer } from '../../bench/support/peers.ts';
import { signIn } from '../../bench/support/sign-in.ts';
import { startUpstream, type UpstreamProcess } from '../../bench/support/upstream-process.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import {
  chunk,
  type RawRequest,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const PATH = '/generic/ns/bench/bot-provider/three-1/message/sse';
const SCRIPT = fileURLToPath(new URL('../../bench/peers/naive.ts', import.meta.url));

let upstream: Pick<UpstreamProcess, 'close'>;
let peer: RunningPeer | undefined;
let child: ChildProcess | undefined;
afterEach(async () => {
  await peer?.close();
  peer = undefined;
  child?.kill('SIGKILL');
  child = undefined;
  await upstream.close();
  stopRedis();
});

/** Starts the script alone; its lines are the port, and then its log. */
async function startScript(redis?: RedisServer): Promise<{ port: number; lines: Interface }> {
  const service = await startUpstream();
  upstream = service;
  return startBefore(service.port, ...(redis ? [redis.url] : []));
}

async function startBefore(
  upstreamPort: number,
  ...redisUrl: string[]
): Promise<{ port: number; lines: Interface }> {
  const args = [SCRIPT, String(upstreamPort), ...redisUrl];
  child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'ignore'] });
  const lines = createInterface(child.stdout as NodeJS.ReadableStream);
  const port = await new Promise<number>((resolve) =>
    lines.once('line', (line) => resolve(JSON.parse(line).port)),
  );
  return { port, lines };
}

const post = (port: number, headers: Record<string, string> = {}) =>
  fetch(`http://127.0.0.1:${port}${PATH}`, { method: 'POST', headers, body: '{}' });

/** Starts the peer as the comparison does, and sends it messages. */
async function carries(name: string): Promise<void> {
  const service = await startUpstream();
  upstream = service;
  peer = await PEERS.find((one) => one.name === name)?.start(service.port);
  const { port, headers } = peer as RunningPeer;
  const connection = messageConnection(port, headers);
  for (let n = 0; n < 3; n++) expect(await connection.send()).toBeGreaterThan(0);
  connection.close();
}

describe('the naive stack', () => {
  test('carries messages of the user who is signed in', () => carries('naive stack'));

  test('refuses others, and has the headers of helmet and of its limit', async () => {
    const { port } = await startScript();
    const refused = await post(port, { Cookie: 'connect.sid=s%3Aguessed.guessed' });
    expect(refused.status).toBe(401);
    expect(refused.headers.get('strict-transport-security')).toContain('max-age');
    expect(refused.headers.get('ratelimit-policy')).toContain('q=1000000000');
    const answered = await post(port, { Cookie: await signIn(port) });
    expect(answered.status).toBe(200);
    expect(await answered.text()).toMatch(/^data: /);
  });

  test('logs each request without its cookie', async () => {
    const { port, lines } = await startScript();
    const cookie = await signIn(port);
    const logged: Record<string, unknown>[] = [];
    const both = new Promise<void>((resolve) => {
      lines.on('line', (line) => {
        logged.push(JSON.parse(line));
        if (logged.length === 2) resolve();
      });
    });
    await (await post(port, { Cookie: cookie })).text();
    await both;
    expect(logged.map(({ req }) => (req as { url: string }).url)).toEqual(['/auth/login', PATH]);
    expect(logged.map(({ res }) => (res as { statusCode: number }).statusCode)).toEqual([200, 200]);
    expect(JSON.stringify(logged)).not.toContain('s%3A');
  });
});

/** Starts the script before a bot service that answers with `onRequest`, and signs in. */
async function startSignedIn(onRequest: (socket: Socket, request: RawRequest) => void) {
  const service = await startRawUpstream(onRequest);
  upstream = service;
  const { port } = await startBefore(service.port);
  const cookie = await signIn(port);
  const ask = (path: string, init: RequestInit = {}) =>
    fetch(`http://127.0.0.1:${port}${path}`, { ...init, headers: { cookie, ...init.headers } });
  const send = (init: RequestInit = {}) =>
    ask(PATH, { method: 'POST', body: '{"customMessageId":"m","customChannelId":"c"}', ...init });
  return { service, ask, send };
}

describe('what the README says that breaks in the naive stack', () => {
  const answers = (socket: Socket) => void socket.write(wholeStream('data: {"n":1}\n\n'));

  test('the same message sent twice is two paid runs', async () => {
    const { service, send } = await startSignedIn(answers);
    for (const answer of [await send(), await send()]) await answer.text();
    expect(service.requests).toHaveLength(2);
  });

  test('a reload ends the answer, and nothing joins it', async () => {
    const { service, ask, send } = await startSignedIn((socket, { requestLine }) => {
      if (requestLine.startsWith('POST')) socket.write(`${STREAM_HEAD}${chunk('data: {"n":1}\n\n')}`);
      else socket.write('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n');
    });
    const page = new AbortController();
    await send({ signal: page.signal });
    page.abort();
    await until(() => service.sockets[0]?.destroyed === true);
    expect((await ask(PATH.replace('sse', 'run'))).status).toBe(404);
  });

  test('an answer that breaks off ends inside an event, without a word', async () => {
    const { send } = await startSignedIn((socket) => void socket.end(`${STREAM_HEAD}${chunk('data: {"n"')}`));
    const { body } = await send();
    let received = '';
    const read = async () => {
      for await (const piece of (body as ReadableStream<Uint8Array>).values())
        received += Buffer.from(piece).toString();
    };
    await read().catch(() => {});
    expect(received).toBe('data: {"n"');
  });

  test('what the service refuses, since it is asked too often or its key is old, reaches the page', async () => {
    const refusals = ['429 Too Many Requests', '401 Unauthorized'];
    const { send } = await startSignedIn(
      (socket) => void socket.write(`HTTP/1.1 ${refusals.shift()}\r\nContent-Length: 0\r\n\r\n`),
    );
    expect([(await send()).status, (await send()).status]).toEqual([429, 401]);
  });

  test('whoever knows the id of a conversation is in it', async () => {
    const { service, send } = await startSignedIn(answers);
    await (await send()).text();
    expect(JSON.parse(String(service.requests[0]?.body)).customChannelId).toBe('c');
  });

  test('each path of the service is open to each user, with the key', async () => {
    const { service, ask } = await startSignedIn(answers);
    await (await ask('/generic/ns/other/bot-provider/secret/message/dispatch', { method: 'POST' })).text();
    expect(service.requests[0]?.requestLine).toContain('/other/bot-provider/secret/message/dispatch');
    expect(service.requests[0]?.all('x-api-key')).toHaveLength(1);
  });
});

describeWithRedis('the naive stack with Redis', () => {
  test('carries messages of the user who is signed in', () => carries('naive stack with Redis'));

  test('keeps its sessions and its counts there', async () => {
    const redis = await startRedis();
    const { port } = await startScript(redis);
    const cookie = await signIn(port);
    await (await post(port, { Cookie: cookie })).text();
    expect(await redis.command('GET', 'requests:127.0.0.1')).toBe('2');
    expect(await redis.command('KEYS', 'sess:*')).toHaveLength(1);
    await redis.command('FLUSHALL');
    expect((await post(port, { Cookie: cookie })).status).toBe(401);
  });
});
