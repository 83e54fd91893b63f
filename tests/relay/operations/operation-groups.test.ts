import { afterEach, expect, test } from '@jest/globals';
import { loadConfig } from '../../../src/config/config.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { jsonAnswer, suspend } from '../../harness/clients/suspend.ts';
import { freshFolder, stopProcesses } from '../../harness/relay/process.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';

let pair: RelayAndUpstream;
afterEach(async () => {
  await pair?.close();
  await stopProcesses();
});

const botsFile = (content: unknown) => `${freshFolder({ 'bots.json': JSON.stringify(content) })}/bots.json`;

async function start(environment: Record<string, string>) {
  pair = await startRelayAndUpstream((socket) => void socket.write(jsonAnswer('200 OK', {})), environment);
}

test('an entry of BOTS_FILE replaces OPERATIONS for its bot', async () => {
  const path = (bot: string) => `/ns/acme/bot-provider/${bot}/message/suspend`;
  await start({
    BOTS: 'acme/*',
    OPERATIONS: 'message',
    BOTS_FILE: botsFile({
      'acme/*': { operations: ['message', 'chat'] },
      'acme/quiet': { operations: ['message'] },
    }),
  });
  expect((await suspend(pair, { path: path('helper') })).status).toBe(200);
  expectProblem(await suspend(pair, { path: path('quiet') }), 501, 'operation_not_enabled');
});

test('a message is refused, and not sent, where its group is off', async () => {
  await start({ OPERATIONS: 'chat' });
  const answer = await call(pair.relay.port, '/ns/acme/bot-provider/helper/message/sse', {
    method: 'POST',
    headers: { Cookie: pair.cookie, 'Content-Type': 'application/json' },
    body: '{}',
  });
  expectProblem(answer, 501, 'operation_not_enabled');
  expect(pair.upstream.requests).toHaveLength(0);
});

test.each(['Sandbox', 'nonsense', ',', 'message chat'])(
  'OPERATIONS=%s is a wrong setting, since there is no such group',
  (operations) => {
    expect(() => loadConfig({ OPERATIONS: operations })).toThrow(/OPERATIONS must/);
  },
);

test('operations of BOTS_FILE must name groups', () => {
  const load = (operations: unknown) => () =>
    loadConfig({ BOTS: 'acme/helper', BOTS_FILE: botsFile({ 'acme/helper': { operations } }) });
  for (const wrong of [[], ['Sandbox'], 'chat', [1]])
    expect(load(wrong)).toThrow(
      'BOTS_FILE: acme/helper operations must be a list of message or chat or files or metadata or sandbox',
    );
  expect(load(['chat'])).not.toThrow(/operations/);
});
