import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface, type Interface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { messageConnection } from '../../bench/support/message-connection.ts';
import { PEERS, type RunningPeer } from '../../bench/support/peers.ts';
import { signIn } from '../../bench/support/sign-in.ts';
import { startUpstream, type UpstreamProcess } from '../../bench/support/upstream-process.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';

const PATH = '/generic/ns/bench/bot-provider/three-1/message/sse';
const SCRIPT = fileURLToPath(new URL('../../bench/peers/naive.ts', import.meta.url));

let upstream: UpstreamProcess;
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
  upstream = await startUpstream();
  const args = [SCRIPT, String(upstream.port), ...(redis ? [redis.url] : [])];
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
  upstream = await startUpstream();
  peer = await PEERS.find((one) => one.name === name)?.start(upstream.port);
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
