import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { cheapHash } from '../harness/relay/cheap-hash.ts';
import { freshFolder, inFrontOf, signInAt, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { USER } from '../harness/relay/relay.ts';
import { startRawUpstream } from '../harness/service/raw-upstream.ts';

jest.setTimeout(60_000);
afterEach(() => stopProcesses());

/** From now on, a process can open nothing: its limit is the lowest number that no open file has. */
function openNothing(pid: number): void {
  const open = new Set(readdirSync(`/proc/${pid}/fd`).map(Number));
  let most = 0;
  while (open.has(most)) most += 1;
  const { status, stderr } = spawnSync('prlimit', [`--pid=${pid}`, `--nofile=${most}:${most}`]);
  if (status !== 0) throw new Error(`prlimit failed: ${stderr}`);
}

describe('a relay with no open file left', () => {
  test.each([
    ['a message', rawMessage({ headers: ['Connection: close'] })],
    [
      'a suspend',
      rawMessage({
        path: '/generic/ns/acme/bot-provider/helper/message/suspend?custom_channel_id=c1',
        headers: ['Connection: close'],
        body: '',
      }),
    ],
  ])('refuses %s as busy, and not as a fault of the service', async (_what, request) => {
    const upstream = await startRawUpstream(() => {});
    const hash = await cheapHash(USER.password);
    const relay = startProcess({
      folder: freshFolder({ 'users.json': JSON.stringify({ users: [{ name: USER.name, hash }] }) }),
      environment: inFrontOf(upstream.url),
    });
    const port = await relay.listening();
    const cookie = await signInAt(port, USER.name, USER.password);
    const client = rawClient(port, 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
    await client.waitFor('{"status":"ok"}');
    const before = client.text().length;
    openNothing(relay.pid);
    client.socket.write(request.replace('\r\n\r\n', `\r\nCookie: ${cookie}\r\n\r\n`));
    await client.closed;
    const answer = parseAnswer(client.text().slice(before));
    expectProblem(answer, 503, 'busy', { retryable: 'new message' });
    expect(answer.headers).toHaveProperty('retry-after');
    await relay.waitFor(/"outcome":"busy","cause":"EMFILE"/);
    expect(upstream.requests).toEqual([]);
    await upstream.close();
  });
});
