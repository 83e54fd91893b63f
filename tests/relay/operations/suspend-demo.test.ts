import { afterEach, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../../src/demo/bot-service.ts';
import { call } from '../../harness/clients/call.ts';
import { CANARY, startRelay, type TestRelay } from '../../harness/relay/relay.ts';

let service: BotService;
let relay: TestRelay;
afterEach(async () => {
  await relay.close();
  await service.close();
});

test('a suspend stops the run of the bot, and its stream ends with run.done', async () => {
  service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 1, silenceMs: 60_000 } });
  relay = await startRelay(service.url, { BOTS: 'demo/slow' });
  const cookie = await relay.signIn();
  const base = '/generic/ns/demo/bot-provider/slow/message';
  const body = JSON.stringify({ customChannelId: 'c1', text: 'hello', action: 'NONE' });
  const stream = await relay.send(cookie, { path: `${base}/sse`, body });
  const text = stream.text();
  // The run is open once its headers have arrived.
  const stop = () =>
    call(relay.port, `${base}/suspend?custom_channel_id=c1`, { method: 'POST', headers: { Cookie: cookie } });
  expect((await stop()).status).toBe(200);
  expect(await text).toMatch(/run\.done[^\n]*\n\n$/);
  expect((await stop()).status).toBe(404);
});
