import type { ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call } from '../support/call.ts';
import {
  FAKE_CLIENT,
  type FakeProvider,
  PATHS,
  signInAt,
  startFakeProvider,
} from '../support/fake-provider.ts';
import { freePort } from '../support/free-port.ts';
import { inFrontOf, type RelayProcess, startProcess, stopProcesses } from '../support/process.ts';

let provider: FakeProvider;
beforeEach(async () => {
  provider = await startFakeProvider();
});
afterEach(async () => {
  await provider.close();
  await stopProcesses([FAKE_CLIENT.secret]);
});

const start = (issuer: string) =>
  startProcess({
    environment: {
      ...inFrontOf('http://127.0.0.1:9'),
      PUBLIC_URL: 'https://chat.example.com',
      ...signInAt(issuer),
    },
  });
const linesOf = (relay: RelayProcess) =>
  relay
    .stdout()
    .split('\n')
    .filter((line) => line.includes('identity provider'))
    .map((line) => JSON.parse(line));

describe('the start of a relay whose users sign in at an identity provider', () => {
  test('says where it listens, for which origin, and that the provider is found', async () => {
    const relay = start(`${provider.issuer}`);
    const [line] = await relay.waitFor(/\{.*"msg":"listening"\}/);
    expect(JSON.parse(line)).toMatchObject({ authMode: 'oidc', publicUrl: 'https://chat.example.com' });
    await relay.waitFor(/"msg":"identity provider discovered"/);
    expect(linesOf(relay)).toEqual([
      expect.objectContaining({
        level: 'info',
        issuer: provider.issuer,
        msg: 'identity provider discovered',
      }),
    ]);
    expect(provider.requests.map(({ path }) => path)).toEqual([PATHS.metadata]);
  });

  test('says that the provider is not found, and goes on', async () => {
    const issuer = `http://127.0.0.1:${await freePort()}`;
    const relay = start(`${issuer}/realms/staff`);
    const port = await relay.listening();
    await relay.waitFor(/"msg":"identity provider not discovered"/);
    expect(linesOf(relay)).toEqual([
      expect.objectContaining({ level: 'error', issuer, cause: 'ECONNREFUSED' }),
    ]);
    expect((await call(port, '/readyz')).status).toBe(200);
    expect(relay.stderr()).toBe('');
  });

  test('does not wait for the provider', async () => {
    let held: ServerResponse | undefined;
    const asked = new Promise<void>((resolve) => {
      provider.answers[PATHS.metadata] = (_req, res) => {
        held = res;
        resolve();
      };
    });
    const relay = start(provider.issuer);
    const port = await relay.listening();
    await asked;
    expect((await call(port, '/readyz')).status).toBe(200);
    expect(linesOf(relay)).toEqual([]);
    held?.writeHead(503).end();
    await relay.waitFor(/"cause":"HTTP_503".*"msg":"identity provider not discovered"/);
  });
});
