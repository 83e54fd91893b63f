import { afterAll, expect, test } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import { call } from '../harness/clients/call.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { deployRelays, stopDeployments } from '../harness/relay/key-deployment.ts';
import { freshFolder, startProcess } from '../harness/relay/process.ts';

afterAll(async () => {
  await stopCommands();
  await stopDeployments();
});

/** The bot service on a file, in a process of its own, with one key; and the commands for its keys. */
async function startService() {
  const folder = freshFolder();
  const environment = {
    ...{ SERVICE_DATA: 'service.db', SERVICE_SECRET: 'a-secret-of-the-service-0123456789-XYZ' },
    ...{ SERVICE_PORT: '0', SERVICE_CONSOLE_PORT: '0' },
  };
  const keys = async (...args: string[]) => {
    const { code, stdout, stderr } = await runCommand({
      args: ['service', 'keys', ...args],
      folder,
      environment,
    });
    expect([code, stderr]).toEqual([0, '']);
    return stdout.trim();
  };
  const key = await keys('create', 'old');
  const port = await startProcess({
    args: ['service', '--rate-limit', '1000'],
    folder,
    environment,
  }).listening();
  return { url: `http://127.0.0.1:${port}`, port, key, keys };
}

test('a key of the bot service is replaced while messages are sent, and no user notices', async () => {
  const { keys, ...upstream } = await startService();
  const deployment = await deployRelays(upstream, 1);
  const relay = deployment.relays[0];
  const printOf = (key: string) => secret(key).fingerprint;
  const sending = deployment.keepSending();
  await sending.more(2);

  // Create, configure, confirm at both sides, and take the old one away.
  const key = await keys('create', 'new');
  expect(await keys('list')).toMatch(/^new +active +created \S+ +used never$/m);
  deployment.putKeys(key, upstream.key);
  await deployment.reloaded(printOf(key), printOf(upstream.key));
  await relay?.waitFor(new RegExp(`"keyFingerprint":"${printOf(key)}","msg":"upstream key accepted"`));
  expect(await keys('list')).toMatch(/^new +active +created \S+ +used \d/m);
  deployment.putKeys(key);
  await deployment.reloaded(printOf(key));
  await sending.settled();

  expect(await keys('disable', 'old')).toBe('old is disabled.');
  const headers = { 'Content-Type': 'application/json', 'X-API-KEY': upstream.key };
  const path = '/generic/ns/demo/bot-provider/echo/message/sse';
  const refused = await call(upstream.port, path, { method: 'POST', headers, body: '{}' });
  expect(refused.status).toBe(401);
  await sending.more(4);
  const endings = await sending.end();
  expect(endings.filter((ending) => ending !== 'answered')).toEqual([]);
  expect(relay?.stdout()).not.toContain('upstream key rejected');
});
