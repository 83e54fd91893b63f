import { Agent, request } from 'node:http';
import { afterAll, describe, expect, test } from '@jest/globals';
import { OPERATION_GROUPS } from '../../src/bots/bot.ts';
import { type Attack, conversationAttacks } from '../harness/clients/conversation-attacks.ts';
import { OTHER_USER, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { LAXITIES, type LaxService, startLaxService } from '../harness/service/lax-service.ts';

/** `ATTACKS` sets another number. */
const TRIES = Number(process.env.ATTACKS ?? 500);
/** With this seed, tries that reach the other user and their sandbox come soon. */
const SEED_FOR_SHARED = 499;
const AT_ONCE = 24;
const SEED = 20_261_122;
const UPSTREAM_ID = /^[0-9a-f]{64}$/;
const PATH = '/ns/acme/bot-provider/helper/message/sse';
const VICTIM = { id: 'ada-1-channel' };

interface Outcome {
  readonly attack: Attack;
  /** 0 if the connection was closed instead of an answer. */
  readonly status: number;
  readonly body: string;
}

const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE });
const opened: { close(): Promise<void> }[] = [];
afterAll(async () => {
  agent.destroy();
  for (const one of opened) await one.close();
});

/** Starts the lax service and a relay, where one user has a conversation; returns how to attack it as another. */
async function startAttack(channels: string, seed = SEED) {
  const service = await startLaxService();
  const relay = await startRelay(service.url, {
    ...{ CHANNELS: channels, RATE_LIMIT: '1000000', OPERATIONS: OPERATION_GROUPS.join() },
    ...{ FORWARD_QUERY: 'is_debug,x', LOG_LEVEL: 'warn' },
  });
  opened.push(relay, service);
  const victim = await relay.signIn();
  const message = JSON.stringify({ customChannelId: VICTIM.id, text: 'hi' });
  await (await relay.send(victim, { path: PATH, body: message })).text();
  service.secretId = service.requests[0]?.found.exact?.[0] ?? '';
  // This user sees their own conversation.
  expect(await (await relay.send(victim, { path: PATH, body: message })).text()).toContain(
    service.secretText,
  );
  service.requests.length = 0;
  const next = conversationAttacks({ ...VICTIM, upstream: service.secretId }, seed);
  const cookie = await relay.signIn(OTHER_USER);
  return { service, relay, attack: (tries: number) => attackAll(relay, { next, cookie, tries }) };
}

async function attackAll(
  relay: TestRelay,
  { next, cookie, tries }: { next: () => Attack; cookie: string; tries: number },
): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  let left = tries;
  const one = async () => {
    while (left-- > 0) {
      const attack = next();
      outcomes.push(await send(relay.port, cookie, attack));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  return outcomes;
}

function send(port: number, cookie: string, attack: Attack): Promise<Outcome> {
  const { method, target, headers, body } = attack;
  return new Promise((resolve) => {
    const length = body ? { 'Content-Length': body.length } : {};
    const outgoing = request(
      {
        port,
        host: '127.0.0.1',
        path: target,
        method,
        agent,
        headers: { ...headers, ...length, Cookie: cookie },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        const done = () =>
          resolve({ attack, status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() });
        response.once('close', done);
      },
    );
    outgoing.once('error', () => resolve({ attack, status: 0, body: '' }));
    outgoing.end(body);
  });
}

/** The requests in which some laxity finds an id that the relay has not made. */
const notMapped = ({ requests }: LaxService) =>
  requests.filter(({ found }) =>
    Object.values(found)
      .flat()
      .some((id) => !UPSTREAM_ID.test(id)),
  );
const ofVictim = ({ requests, secretId }: LaxService) =>
  requests.filter(({ found }) => Object.values(found).flat().includes(secretId));

/** Whether it was a fault of the relay, as an answer or in a stream. */
const isFault = ({ status, body }: { readonly status: number; readonly body: string }) =>
  status === 500 || body.includes('"code":"internal_error"');

describe("another user's conversation", () => {
  test(`is not reached by ${TRIES} tries, however lax the bot service is`, async () => {
    const { service, attack } = await startAttack('scoped');
    expect(service.secretId).toMatch(UPSTREAM_ID);
    const outcomes = await attack(TRIES);
    expect(outcomes).toHaveLength(TRIES);
    expect(outcomes.filter(({ body }) => body.includes(service.secretText))).toEqual([]);
    expect(ofVictim(service)).toEqual([]);
    expect(notMapped(service)).toEqual([]);
    expect(service.requests.filter(({ namesBox, leavesFolder }) => namesBox || leavesFolder)).toEqual([]);
    // Sandboxes of their own are reached.
    expect(service.requests.filter(({ target }) => target.includes('/own-box/')).length).toBeGreaterThan(
      TRIES / 200,
    );
    const statuses = Map.groupBy(outcomes, ({ status }) => status);
    expect(outcomes.filter(isFault)).toEqual([]);
    // A body that is too large may end with its connection.
    expect(statuses.get(0)?.length ?? 0).toBeLessThan(TRIES / 100);
    // Some tries are good requests of the attacker's own conversations; most are refused.
    expect(statuses.get(200)?.length).toBeGreaterThan(TRIES / 50);
    expect(statuses.get(400)?.length).toBeGreaterThan(TRIES / 4);
    expect(service.requests.length).toBeGreaterThan(TRIES / 50);
  }, 60_000);

  test('is reached by such tries with CHANNELS=shared, so that they are worth something', async () => {
    const { service, attack } = await startAttack('shared', SEED_FOR_SHARED);
    const outcomes: Awaited<ReturnType<typeof attack>> = [];
    const isReached = () =>
      outcomes.some(({ body }) => body.includes(service.secretText)) &&
      ofVictim(service).length >= 5 &&
      service.requests.some(({ namesBox }) => namesBox);
    while (outcomes.length < 2_000 && !isReached()) outcomes.push(...(await attack(50)));
    expect(isReached()).toBe(true);
    expect(outcomes.filter(isFault)).toEqual([]);
  }, 60_000);
});

describe('the lax bot service', () => {
  const X = 'x'.repeat(64);
  test.each([
    ['exact', `{"customChannelId":"${X}"}`, ''],
    ['exact', '', `?custom_channel_id=${X}`],
    ['without case, last wins', `{"customChannelId":"a","CUSTOMchannelID":"${X}"}`, ''],
    ['without case, last wins', '', `?custom_channel_id=a&CUSTOM_channel_id=${X}`],
    ['without case and joints, last wins', `{"Custom-Channel-Id":"${X}"}`, ''],
    ['first wins', `{"customChannelId":"${X}","custom\\u0043hannelId":"a"}`, ''],
    ['arrays', `{"customChannelId":["${X}"]}`, ''],
    ['arrays', `[{"a":1},{"customChannelId":"${X}"}]`, ''],
    ['arrays', '', `?custom_channel_id%5B0%5D=${X}`],
    ['trimmed', `{" customChannelId\\u0000":"\\n${X} "}`, ''],
    ['NFKC', `{"ｃustomChannelId":"${X.replace('x', 'ｘ')}"}`, ''],
    ['cut at 64', `{"customChannelId":"${X}y"}`, ''],
    ['inherits', `{"__proto__":{"customChannelId":"${X}"}}`, ''],
    ['inherits', `{"constructor":{"prototype":{"customChannelId":"${X}"}}}`, ''],
    ['inherits', `{"prototype":{"customChannelId":"${X}"}}`, ''],
  ])('that is %s finds the id in %s%s', async (laxity, body, query) => {
    const service = await startLaxService();
    opened.push(service);
    const headers = { 'Content-Type': 'application/json' };
    await (await fetch(`${service.url}/${query}`, { method: 'POST', headers, body })).text();
    const { found = {} } = service.requests[0] ?? {};
    expect(found[laxity]).toEqual([X]);
    expect(found['all at once']).toContain(X);
    if (laxity !== 'exact') expect(found.exact).not.toContain(X);
  });

  test('has each of its ways tested', () => {
    expect(Object.keys(LAXITIES)).toHaveLength(10);
  });
});
