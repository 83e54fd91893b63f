import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { endpointLimit } from '../../src/service/admit-call.ts';
import { type BotService, type BotServiceOptions, startBotService } from '../../src/service/bot-service.ts';
import { DEMO } from '../../src/service/settings/settings.ts';
import { call } from '../harness/clients/call.ts';
import { CANARY, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { demoEvents, wholeMessages } from '../harness/service/demo-service.ts';
import { chatChunk, modelSettings } from '../harness/service/model-fixtures.ts';
import { dataStream, type ModelServer, startModelServer } from '../harness/service/model-server.ts';
import { botWith } from '../harness/service/settings-file.ts';

const PATH = '/generic/ns/demo/bot-provider/assistant/message/sse';

const HELLO = dataStream(chatChunk({ content: 'Hello' }), chatChunk({}, 'stop'), '[DONE]');
let server: ModelServer;
let service: BotService;
let relay: TestRelay;
beforeEach(async () => {
  server = await startModelServer();
  server.answer = () => HELLO;
});
afterEach(async () => {
  jest.restoreAllMocks();
  await relay?.close();
  await service?.close();
  await server.close();
});

/** Starts a relay in front of a service with a model. */
async function start(options: BotServiceOptions = {}) {
  const assistant = modelSettings('openai-compatible', { endpoint: `${server.url}/v1` });
  service = await startBotService({ keys: [CANARY.key], assistant, ...options });
  // The relay's own limits must not be met first.
  relay = await startRelay(service.url, {
    BOTS: 'demo/*',
    MAX_EXECUTION_MS: '600000',
    RATE_MAX_WAIT_MS: '60000',
  });
  return relay.signIn();
}

/** The events that answer a message at the relay. */
async function say(cookie: string, path = PATH) {
  const body = JSON.stringify({ text: 'Hello', customChannelId: 'c1' });
  const answer = await relay.send(cookie, { path, body });
  expect(answer.status).toBe(200);
  return demoEvents(await answer.text());
}

const errorOf = (events: Awaited<ReturnType<typeof say>>) => {
  const { eventType, fact } = events.at(-1) ?? {};
  return { eventType, error: (fact?.runError?.error as { code?: string } | undefined)?.code };
};
const failed = (error: string) => ({ eventType: 'asgard.run.error', error });

describe('the limits of the service, seen through the relay', () => {
  test('five requests a second for each endpoint: the next is told when to come again, and is answered then', async () => {
    const cookie = await start();
    const all = await Promise.all(Array.from({ length: 6 }, () => say(cookie)));
    expect(all.map((events) => events.at(-1)?.eventType)).toEqual(Array(6).fill('asgard.run.done'));
    const headers = { 'Content-Type': 'application/json', 'X-API-KEY': CANARY.key };
    const port = Number(service.url.port);
    const direct = (path: string) => call(port, path, { method: 'POST', headers, body: 'x' });
    // Far more than it takes in any second.
    const answers = await Promise.all(Array.from({ length: 100 }, () => direct(PATH)));
    const refused = answers.filter(({ status }) => status === 429);
    expect(refused.length).toBeGreaterThan(0);
    expect(new Set(refused.map((one) => one.headers['retry-after']))).toEqual(new Set(['1']));
    expect((await direct(PATH.replace('assistant', 'echo'))).status).toBe(400);
  });

  test('exactly five in any second', () => {
    let now = 0;
    jest.spyOn(performance, 'now').mockImplementation(() => now);
    const admit = endpointLimit(5);
    const admittedAt = (at: number, endpoint = 'a/b') => {
      now = at;
      return admit(endpoint);
    };
    expect([0, 1, 2, 3, 999, 999.9].map((at) => admittedAt(at))).toEqual([
      true,
      true,
      true,
      true,
      true,
      false,
    ]);
    expect(admittedAt(999.9, 'a/c')).toBe(true);
    expect([1000, 1000.5, 1001].map((at) => admittedAt(at))).toEqual([true, false, true]);
  });

  test('three minutes: a model that never ends is given up, in-band', async () => {
    server.answer = (_request, res) => {
      res.writeHead(200, { 'Content-Type': 'text/event-stream' });
      res.write(`${HELLO.body.split('\n\n')[0]}\n\n`);
      return undefined;
    };
    const timers = jest.spyOn(globalThis, 'setTimeout');
    const usual = await startBotService({ keys: [CANARY.key], speed: { wordMs: 0 } });
    const headers = { 'Content-Type': 'application/json', 'X-API-KEY': CANARY.key };
    const path = PATH.replace('assistant', 'echo');
    await call(Number(usual.url.port), path, { method: 'POST', headers, body: '{}' });
    expect(timers).toHaveBeenCalledWith(expect.any(Function), 180_000);
    await usual.close();
    timers.mockRestore();

    const events = await say(await start({ maxExecutionMs: 300 }));
    expect(errorOf(events)).toEqual(failed('EXECUTION_TIMEOUT'));
    expect(wholeMessages(events)).toEqual([]);
  });
});

describe('a bot of the settings', () => {
  test('answers with the model of its project, before the assistant of the same name, and says if there is none', async () => {
    const cookie = await start();
    const { settings } = service;
    settings.saveBot(DEMO, botWith({ name: 'assistant', instructions: 'Be brief.' }));
    expect(errorOf(await say(cookie))).toEqual(failed('MODEL_NOT_SET'));
    expect(server.requests).toEqual([]);
    settings.saveModel(DEMO, 'completion', {
      ...{
        kind: 'openai-compatible',
        model: 'of-project',
        endpoint: `${server.url}/v1`,
        windowCharacters: 9000,
      },
    });
    expect(wholeMessages(await say(cookie))).toMatchObject([{ text: 'Hello' }]);
    const [request] = server.requests;
    expect(request?.body).toMatchObject({ model: 'of-project' });
    expect(JSON.stringify(request?.body)).toContain('Be brief.');
  });

  test('searches the knowledge of its project with its embedding model, and answers with what it found', async () => {
    const cookie = await start();
    const { settings } = service;
    const at = { kind: 'openai-compatible', endpoint: `${server.url}/v1`, windowCharacters: 9000 } as const;
    settings.saveBot(DEMO, botWith({ usesKnowledge: true }));
    settings.saveModel(DEMO, 'completion', { ...at, model: 'speaks' });
    settings.saveModel(DEMO, 'embedding', { ...at, model: 'embeds' });
    const asked = JSON.stringify({ query: 'leave' });
    const search = {
      ...{ id: 'call_1', type: 'function' },
      function: { name: 'search_knowledge', arguments: asked },
    };
    const tool = dataStream(
      chatChunk({ tool_calls: [{ index: 0, ...search }] }),
      chatChunk({}, 'tool_calls'),
      '[DONE]',
    );
    server.answer = ({ body }) => (JSON.stringify(body).includes('"role":"tool"') ? HELLO : tool);
    const events = await say(cookie, PATH.replace('assistant', 'helper'));
    expect(wholeMessages(events)).toMatchObject([{ text: 'Hello' }]);
    // Nothing is indexed, so nothing is paid to search it.
    expect(server.requests.map(({ path }) => path)).toEqual(Array(2).fill('/v1/chat/completions'));
    expect(JSON.stringify(server.requests[1]?.body)).toContain('\\"found\\":[]');
  });
});
