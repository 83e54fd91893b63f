import { afterAll, describe, expect, test } from '@jest/globals';
import {
  expectNotReached,
  isFault,
  ofVictim,
  startAttack,
  stopAttacks,
} from '../harness/clients/attack-conversations.ts';
import { LAXITIES, startLaxService } from '../harness/service/lax-service.ts';

/** `npm run prove` tries 10,000. */
const TRIES = 500;
/** With this seed, tries that reach the other user and their sandbox come soon. */
const SEED_FOR_SHARED = 499;

const opened: { close(): Promise<void> }[] = [];
afterAll(async () => {
  await stopAttacks();
  for (const one of opened) await one.close();
});

describe("another user's conversation", () => {
  test(
    `is not reached by ${TRIES} tries, however lax the bot service is`,
    () => expectNotReached(TRIES),
    60_000,
  );

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
