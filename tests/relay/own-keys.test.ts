import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { CANARY, expectNoCanary } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { plainAnswer, wholeStream } from '../harness/service/raw-upstream.ts';

const pathOf = (bot: string) => `/generic/ns/acme/bot-provider/${bot}/message/sse`;

let folder: string;
let pair: RelayAndUpstream;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-own-'));
});
afterEach(async () => {
  await pair.close();
  stopRedis();
  rmSync(folder, { recursive: true });
});

const OWN = {
  'acme/own': { keys: [CANARY.secondKey], rateLimit: 3 },
  'acme/limited': { rateLimit: 1 },
};

/** Starts a relay with the bots file `own`, and an upstream that answers with `answer`. */
async function start(own: object, environment = {}, answer: string | Buffer = wholeStream('data: a\n\n')) {
  writeFileSync(join(folder, 'bots.json'), JSON.stringify(own));
  pair = await startRelayAndUpstream((socket) => void socket.write(answer), {
    BOTS: 'acme/*',
    BOTS_FILE: join(folder, 'bots.json'),
    RATE_WINDOW_MS: '600000',
    RATE_MAX_WAIT_MS: '0',
    ...environment,
  });
}

async function ask(bot: string) {
  const response = await pair.relay.send(pair.cookie, { path: pathOf(bot) });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

describe('a bot with its own keys', () => {
  test('uses only those; other bots use the common keys', async () => {
    await start(OWN);
    for (const bot of ['own', 'helper', 'limited']) expect((await ask(bot)).status).toBe(200);
    expect(pair.upstream.requests.map(({ all }) => all('x-api-key'))).toEqual([
      [CANARY.secondKey],
      [CANARY.key],
      [CANARY.key],
    ]);
  });

  test('does not fall back to the common keys', async () => {
    await start(OWN, {}, plainAnswer('401 No', []));
    expect(errorEventIn((await ask('own')).text)).toMatchObject({
      code: 'upstream_key_rejected',
      status: 502,
    });
    expect(pair.upstream.requests.map(({ all }) => all('x-api-key'))).toEqual([[CANARY.secondKey]]);
  });

  test('shows neither its keys nor those of others in a refusal of the service', async () => {
    const body = JSON.stringify({ message: `${CANARY.secondKey} is not ${CANARY.key}` });
    await start(OWN, {}, plainAnswer('400 No', ['Content-Type: application/json'], body));
    for (const bot of ['own', 'helper']) {
      const { text } = await ask(bot);
      expectNoCanary(text);
      expect(errorEventIn(text).upstream).toEqual({ message: '[secret] is not [secret]' });
    }
  });
});

function limits(environment: () => Promise<Record<string, string>>): void {
  test('is kept and told to clients; other bots have the common limit', async () => {
    await start(OWN, { RATE_LIMIT: '2', ...(await environment()) });
    const statuses: Record<string, number[]> = {};
    for (const bot of ['own', 'limited', 'helper']) {
      statuses[bot] = [];
      for (let n = 0; n < 4; n++) statuses[bot].push((await ask(bot)).status);
    }
    expect(statuses).toEqual({
      own: [200, 200, 200, 429],
      limited: [200, 429, 429, 429],
      helper: [200, 200, 429, 429],
    });
    const told = async (bot: string) => (await ask(bot)).headers.get('ratelimit-policy');
    expect(await told('own')).toBe('"endpoint";q=3;w=600');
    expect(await told('limited')).toBe('"endpoint";q=1;w=600');
    expect(await told('helper')).toBe('"endpoint";q=2;w=600');
  });
}

describe("a bot's own rate limit", () => limits(async () => ({})));

describeWithRedis("a bot's own rate limit in Redis", () =>
  limits(async () => ({ REDIS_URL: (await startRedis()).url })),
);
