import type { ServerResponse } from 'node:http';
import { afterAll, describe, expect } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { inFrontOf, type RelayProcess, startProcess, stopProcesses } from '../harness/relay/process.ts';
import {
  FAKE_CLIENT,
  type FakeProvider,
  PATHS,
  signInAt,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';

const providers: FakeProvider[] = [];
afterAll(async () => {
  for (const provider of providers) await provider.close();
  await stopProcesses([FAKE_CLIENT.secret]);
});

async function startProvider(): Promise<FakeProvider> {
  const provider = await startFakeProvider();
  providers.push(provider);
  return provider;
}

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

async function providerIsFound(): Promise<void> {
  const provider = await startProvider();
  const relay = start(provider.issuer);
  const [line] = await relay.waitFor(/\{.*"msg":"listening"\}/);
  expect(JSON.parse(line)).toMatchObject({ authMode: 'oidc', publicUrl: 'https://chat.example.com' });
  await relay.waitFor(/"msg":"identity provider discovered"/);
  expect(linesOf(relay)).toEqual([
    expect.objectContaining({ level: 'info', issuer: provider.issuer, msg: 'identity provider discovered' }),
  ]);
  expect(provider.requests.map(({ path }) => path)).toEqual([PATHS.metadata]);
}

async function doesNotWait(): Promise<void> {
  const provider = await startProvider();
  let held: ServerResponse | undefined;
  const asked = new Promise<void>((resolve) => {
    provider.answers[`/realms/staff${PATHS.metadata}`] = (_req, res) => {
      held = res;
      resolve();
    };
  });
  const relay = start(`${provider.issuer}/realms/staff`);
  const port = await relay.listening();
  await asked;
  expect((await call(port, '/readyz')).status).toBe(200);
  expect(linesOf(relay)).toEqual([]);
  held?.writeHead(503).end();
  await relay.waitFor(/"msg":"identity provider not discovered"/);
  // Without its path.
  expect(linesOf(relay)).toEqual([
    expect.objectContaining({ level: 'error', issuer: provider.issuer, cause: 'HTTP_503' }),
  ]);
  expect((await call(port, '/readyz')).status).toBe(200);
  expect(relay.stderr()).toBe('');
}

describe('the start of a relay whose users sign in at an identity provider', () => {
  testSideBySide([
    ['logs where it listens, for which origin, and that the provider is found', providerIsFound],
    ['does not wait for the provider, logs that it is not found, and goes on', doesNotWait],
  ]);
});
