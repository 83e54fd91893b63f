import { afterAll, expect, test } from '@jest/globals';
import { startBotService } from '../../src/demo/bot-service.ts';
import { type Alter, startAlteringService, withIds } from '../support/altering-service.ts';
import { type Checked, checkEnvironment, runCheck } from '../support/check.ts';
import { stopProcesses } from '../support/process.ts';
import { CANARY } from '../support/relay.ts';

afterAll(() => stopProcesses());

/** Runs the check directly against the demo's bot service with alterations. */
async function check(alter: Alter, channels = 'owned'): Promise<Checked & { asked: number }> {
  const demo = await startBotService({ keys: [CANARY.key], speed: { wordMs: 1 } });
  const service = await startAlteringService(demo.url, { alter });
  const environment = { BOTS: 'demo/echo', RESUME_UPSTREAM: 'off', CHANNELS: channels };
  try {
    const checked = await runCheck(['--text', 'Hi'], checkEnvironment(service.url, environment));
    return { ...checked, asked: service.requests.filter(({ method }) => method === 'GET').length };
  } finally {
    await service.close();
    await demo.close();
  }
}

const metadata =
  (status: number): Alter =>
  (request) =>
    request.method === 'GET' ? { status } : request;

test.each<[string, Alter, string]>([
  ['tells ids apart is fine', (request) => request, 'ok the bot service tells two ids apart that differ'],
  ['takes ids without case is fine', withIds((id) => id.toLowerCase()), 'ok '],
  [
    'cuts ids is a problem',
    withIds((id) => id.slice(0, 40)),
    'problem the bot service takes two ids for the',
  ],
  ['ignores the id is a problem', withIds(() => 'the-only-one'), 'problem '],
  [
    'forgets conversations is noted',
    metadata(404),
    'note not proved: the bot service answers channel/metadata',
  ],
  [
    'refuses the key is noted',
    metadata(403),
    'note not proved: the bot service answers channel/metadata with 403',
  ],
])('with CHANNELS=owned, a bot service that %s', async (_what, alter, says) => {
  const checked = await check(alter);
  expect(checked.of('conversation ids')).toEqual([expect.stringContaining(says)]);
  expect(checked.messages).toBe(1);
});

test.each(['scoped', 'shared'])('with CHANNELS=%s, nothing is asked', async (channels) => {
  const checked = await check((request) => request, channels);
  expect([checked.of('conversation ids'), checked.asked]).toEqual([[], 0]);
});
