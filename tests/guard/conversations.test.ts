import { Agent, request } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { OPERATION_GROUPS } from '../../src/bots/bot.ts';
import { channelInJson, channelInQuery, withChannel } from '../../src/guard/channel-places.ts';
import { conversationBlobs, type GivenBlobs, KEPT_MS, MAX_KEPT } from '../../src/guard/conversation-blobs.ts';
import { memoryGivenBlobs } from '../../src/guard/memory-given-blobs.ts';
import { redisGivenBlobs } from '../../src/guard/redis-given-blobs.ts';
import { scopedChannelId } from '../../src/guard/scoped-channels.ts';
import { secret } from '../../src/secret.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keyPart } from '../../src/storage/redis-key.ts';
import { type Attack, conversationAttacks } from '../harness/clients/conversation-attacks.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { OTHER_USER, startRelay } from '../harness/relay/relay.ts';
import { codeThrownBy } from '../harness/relay/thrown-problem.ts';
import { type LaxService, startLaxService } from '../harness/service/lax-service.ts';

const inJson = (text: string) => channelInJson(Buffer.from(text));
const refused = (judge: () => unknown, code = 'invalid_conversation') =>
  expect(codeThrownBy(judge)).toBe(code);

/** What some services drop, and where some end a name. */
const JOINT = fc.constantFrom('', '', '', '_', '-', ' ', '.', '\0', '\n', '[', '$');
const END = fc.oneof(
  fc.constantFrom('', '_', '-', '--', ' ', '\n', '\0'),
  fc
    .tuple(
      fc.constantFrom('[]', '[0', '.', '/', ':', ' ', '\0', ']', ';', '_\t'),
      fc.string({ unit: 'binary-ascii', maxLength: 5 }),
    )
    .map((of) => of.join('')),
);
/** Names of ASCII that some service reads as `customChannelId`: without case, joints, or what comes behind. */
const similarName = fc
  .tuple(fc.array(fc.tuple(JOINT, fc.boolean()), { minLength: 15, maxLength: 15 }), END)
  .map(([letters, end]) => {
    const name = letters.map(([joint, isUpper], n) => {
      const letter = 'customchannelid'[n] as string;
      return joint + (isUpper ? letter.toUpperCase() : letter);
    });
    return name.join('') + end;
  });
/** Names that are not ASCII: which of them a service reads as another one, nobody knows. */
const foreignName = fc.oneof(
  fc.constantFrom('ｃustomChannelId', 'cuſtomChannelId', 'customChannelıd', 'customChannelId\u200b', 'größe'),
  fc
    .tuple(fc.string(), fc.string({ unit: 'grapheme', minLength: 1 }), fc.string())
    .map((of) => of.join(''))
    .filter((name) => /[^\0-\x7f]/.test(name) && name.isWellFormed()),
);
const otherName = fc.constantFrom(
  ...[
    'customChannelIds',
    'customChannelId_x',
    'customChannelId-x',
    'myCustomChannelId',
    'x[customChannelId]',
    'text',
  ],
);

describe('the id of a conversation in JSON', () => {
  test.each([
    ['{"customChannelId":"c1","text":"Hi"}', 'c1'],
    ['{ "text" : "Hi" , "custom\\u0043hannelId" : "\\u0063\\"1" }', 'c"1'],
    ['{"customChannelId":"😀"}', '😀'],
    ['{"payload":{"customChannelId":"other"},"customChannelId":"mine"}', 'mine'],
    ...['{"text":"customChannelId"}', '{"payload":{"custom_channel_id":"x"}}', '{}', '[]', '1'].map(
      (json) => [json, undefined] as const,
    ),
  ])('of %s is %s', (json, id) => {
    expect(inJson(json)?.id).toBe(id);
  });

  test('is found by its escaped name, also where JSON.parse takes that for another one', () => {
    // Names are not taken from the parsed body: V8 remembers this one, and reads it below (nodejs/node#63785).
    JSON.parse('{"text":0,"custom\\\\u0043han":0}');
    const json = '{"text":1,"custom\\u0043hannelId":"c1"}';
    expect(inJson(json)?.id).toBe('c1');
  });

  test('is not taken from a similar name, alone or beside the exact one, but can stand beside others', () =>
    fc.assert(
      fc.property(fc.oneof(similarName, foreignName), otherName, (name, other) => {
        if (name === 'customChannelId') return;
        const [similar, exact] = [`${JSON.stringify(name)}:"x"`, '"customChannelId":"c1"'];
        for (const json of [`{${similar}}`, `{${exact},${similar}}`, `{${similar},${exact}}`])
          refused(() => inJson(json));
        expect(inJson(`{"${other}":"x",${exact}}`)?.id).toBe('c1');
      }),
      { numRuns: 1000 },
    ));

  test.each([
    '{"customChannelId":"a","customChannelId":"a"}',
    '{"customChannelId":"a","\\u0063ustomChannelId":"b"}',
    ...['""', 'null', '7', '["c1"]', '{"a":"c1"}', 'true', '"\\ud800"', `"${'x'.repeat(257)}"`].map(
      (value) => `{"customChannelId":${value}}`,
    ),
    `{"text":"hi","${'x'.repeat(129)}":0}`,
    `{${Array.from({ length: 1_001 }, (_, i) => `"${i}":0`).join()}}`,
  ])('is refused in %s', (json) => refused(() => inJson(json)));

  test('is found beside as many and as long names as there may be', () => {
    const names = Array.from({ length: 999 }, (_, i) => `"${String(i).padEnd(128, 'x')}":0`);
    const id = 'x'.repeat(256);
    expect(inJson(`{${names.join()},"customChannelId":"${id}"}`)?.id).toBe(id);
  });

  test('is looked for quickly in a body that is made to be slow', () => {
    // Folding these marks takes minutes, which is longer than a test may take.
    const marks = `${'\u0301'.repeat(200_000)}${'\u0327'.repeat(200_000)}`;
    const many = Array.from({ length: 170_000 }, () => '"":0').join();
    for (const members of [`"${marks}":0`, many]) refused(() => inJson(`{"text":"hi",${members}}`));
  });

  test('is replaced without a change of any other byte', () => {
    const before = '{ "big":12345678901234567890, "customChannelId" : "\\u0063" ,"e":"é\\/" }\n';
    const placed = inJson(before);
    if (!placed) throw new Error('it is not found');
    expect(withChannel(Buffer.from(before), placed, 'f0"0').toString()).toBe(
      '{ "big":12345678901234567890, "customChannelId" : "f0\\"0" ,"e":"é\\/" }\n',
    );
  });
});

describe('the id of a conversation in a query', () => {
  test.each([
    ['/x?custom_channel_id=c1', 'c1'],
    ['/x?a=1&custom_channel_id=c%201+2%3D=3', 'c 1 2==3'],
    ['/x?custom%5Fchannel_id=%F0%9F%98%80', '😀'],
    ...['/x', '/x?', '/x?a=custom_channel_id', '/x?channel=1'].map((url) => [url, undefined] as const),
  ])('of %s is %s', (url, id) => expect(channelInQuery(url)).toBe(id));

  test('is not taken from a similar name, alone or beside the exact one', () =>
    fc.assert(
      fc.property(fc.oneof(similarName, foreignName), (name) => {
        if (name === 'custom_channel_id') return;
        const similar = `${encodeURIComponent(name)}=x`;
        for (const query of [similar, `custom_channel_id=a&${similar}`, `${similar}&custom_channel_id=a`])
          refused(() => channelInQuery(`/x?${query}`));
      }),
      { numRuns: 1000, examples: [['customChannelId'], ['custom_channel_id[]']] },
    ));

  test.each([
    ['custom_channel_id=a&custom_channel_id=a', 'invalid_conversation'],
    ['custom_channel_id=', 'invalid_conversation'],
    ['custom_channel_id', 'invalid_conversation'],
    [`custom_channel_id=${'x'.repeat(257)}`, 'invalid_conversation'],
    ['custom_channel_id=%ff', 'invalid_query'],
    ['custom_channel_id=%ed%a0%80', 'invalid_query'],
    ['custom_channel_id=%zz', 'invalid_query'],
    ['a=%ff&custom_channel_id=c', 'invalid_query'],
    [`${'x'.repeat(129)}=1&custom_channel_id=c`, 'invalid_conversation'],
    [`custom_channel_id=c${'&a=1'.repeat(1_000)}`, 'invalid_conversation'],
  ])('is refused in %s', (query, code) => refused(() => channelInQuery(`/x?${query}`), code));
});

describe('the id of a conversation at the service', () => {
  const SECRET = secret('a secret of at least thirty-two characters');
  const OWNER = { realm: 'password', userId: 'ada', id: 'c1' };

  test('is the one that another program computes', () => {
    // HMAC-SHA-256 of each text behind its length in four bytes.
    expect(scopedChannelId(SECRET, OWNER)).toBe(
      '5e375d018739fdd5edd47e89dff8e9731b19211a39e886d035d34d5281278429',
    );
  });

  test('differs for any other secret, realm, user and id, however they are divided, and no service changes it', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', '\uff11', '1', '\0', '😀'), maxLength: 4 });
    const owner = fc.record({ realm: text, userId: text, id: text });
    const other = secret('another secret of at least thirty-two characters');
    fc.assert(
      fc.property(owner, owner, (one, two) => {
        const same = JSON.stringify(one) === JSON.stringify(two);
        expect(scopedChannelId(SECRET, one) === scopedChannelId(SECRET, two)).toBe(same);
        expect(scopedChannelId(SECRET, one)).toMatch(/^[0-9a-f]{64}$/);
        expect(scopedChannelId(other, one)).not.toBe(scopedChannelId(SECRET, one));
      }),
    );
    const divided = { realm: 'passworda', userId: 'da', id: 'c1' };
    expect(scopedChannelId(SECRET, divided)).not.toBe(scopedChannelId(SECRET, OWNER));
  });
});

const numbered = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => `b${from + n}`);

/** Tests for every implementation of the given files. */
function contract(make: () => GivenBlobs): void {
  test('are known where they were given, and nowhere else', async () => {
    const given = make();
    await given.remember('place one', ['a', 'b']);
    await given.remember('place one', ['c']);
    expect(await given.areGiven('place one', ['a', 'c'])).toBe(true);
    expect(await given.areGiven('place one', ['a', 'd'])).toBe(false);
    expect(await given.areGiven('place two', ['a'])).toBe(false);
  });

  test('are forgotten, the oldest first, if there are too many', async () => {
    const given = make();
    await given.remember('many', ['first', ...numbered(0, MAX_KEPT - 1)]);
    expect(await given.areGiven('many', ['first'])).toBe(true);
    await given.remember('many', ['first']);
    await given.remember('many', ['one more']);
    expect(await given.areGiven('many', ['first', 'one more', ...numbered(1, MAX_KEPT - 1)])).toBe(true);
    expect(await given.areGiven('many', ['b0'])).toBe(false);
  });
}

describe('given files in memory', () => {
  contract(() => memoryGivenBlobs());

  test('expire a day after the last one of their conversation', async () => {
    let now = 0;
    const given = memoryGivenBlobs(() => now);
    await given.remember('p', ['a']);
    now = KEPT_MS - 1;
    await given.remember('p', ['b']);
    now = 2 * KEPT_MS - 2;
    expect(await given.areGiven('p', ['a', 'b'])).toBe(true);
    now += 1;
    expect(await given.areGiven('p', ['b'])).toBe(false);
  });

  test('are kept for 10,000 conversations', async () => {
    const given = memoryGivenBlobs();
    for (let n = 0; n <= 10_000; n += 1) await given.remember(`p${n}`, ['a']);
    expect(await given.areGiven('p0', ['a'])).toBe(false);
    expect(await given.areGiven('p1', ['a'])).toBe(true);
  });
});

describeWithRedis('given files in Redis', () => {
  let redis: Redis;
  beforeAll(async () => {
    redis = await connected((await startRedis()).url);
  });
  afterAll(async () => {
    redis.close();
    await stopRedis();
  });

  contract(() => redisGivenBlobs(redis));

  test('expire a day after the last one, and their keys name nobody', async () => {
    await redisGivenBlobs(redis).remember('ada', ['a']);
    const [left] = await redis.onEach((server) => server.pTTL(`bot-relay:blobs:${keyPart('ada')}`));
    expect(left).toBeGreaterThan(KEPT_MS - 60_000);
    expect(left).toBeLessThanOrEqual(KEPT_MS);
  });
});

describe('the files of a message', () => {
  const blobs = (takesFiles = true) =>
    conversationBlobs({ given: memoryGivenBlobs(), realm: 'r', takesFiles: () => takesFiles });
  const owner = { bot: 'acme/helper', userId: 'ada', conversation: { client: 'c', upstream: 'u' } };
  const message = (blobIds: unknown) => Buffer.from(JSON.stringify({ customChannelId: 'c', blobIds }));
  const answer = Buffer.from('{"data":[{"blobId":"a"},{"blobId":"b","other":{"blobId":7}}]}');

  test('pass if they were given to this user in this conversation of this bot', async () => {
    const all = blobs();
    await all.remember(answer, owner);
    for (const good of [['a', 'b'], [], null, undefined])
      expect(await all.check(message(good), owner)).toBeUndefined();
    const others = [
      { ...owner, userId: 'bob' },
      { ...owner, bot: 'acme/other' },
      { ...owner, conversation: { client: 'c', upstream: 'other' } },
      { ...owner, conversation: undefined },
    ];
    for (const other of others)
      await expect(all.check(message(['a']), other)).rejects.toMatchObject({ code: 'not_your_conversation' });
    await expect(all.check(message(['a', 'x']), owner)).rejects.toMatchObject({
      code: 'not_your_conversation',
    });
  });

  test('are found in an answer with very many levels', async () => {
    const all = blobs();
    const levels = 100_000;
    await all.remember(Buffer.from(`${'['.repeat(levels)}{"blobId":"a"}${']'.repeat(levels)}`), owner);
    await expect(all.check(message(['a']), owner)).resolves.toBeUndefined();
  });

  test.each([
    '{"blobIds":"a"}',
    '{"blobIds":[1]}',
    '{"blobIds":[""]}',
    '{"blobIds":{"0":"a"}}',
    '{"blob_ids":["x"]}',
    '{"blobIds[]":["x"]}',
    '{"BLOBIDS":["x"]}',
    '{"blobIds":[],"blobIds":["x"]}',
    `{"blobIds":${JSON.stringify(numbered(0, 101))}}`,
  ])('are one list with its own name: %s is refused', async (json) => {
    const check = async () => blobs().check(Buffer.from(json), owner);
    await expect(check()).rejects.toMatchObject({ code: 'invalid_conversation' });
  });

  test('are left to the service where uploads are off, and refused if no answer has named them', async () => {
    expect(await blobs(false).check(message(['x']), owner)).toBeUndefined();
    const all = blobs();
    for (const empty of ['', '{}', '"a"', '{"blobId":""}']) await all.remember(Buffer.from(empty), owner);
    await expect(all.check(message(['a']), owner)).rejects.toMatchObject({ code: 'not_your_conversation' });
  });
});

/** `ATTACKS` sets another number. */
const TRIES = Number(process.env.ATTACKS ?? 500);
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
async function startAttack() {
  const service = await startLaxService();
  const relay = await startRelay(service.url, {
    ...{ RATE_LIMIT: '1000000', OPERATIONS: OPERATION_GROUPS.join() },
    ...{ FORWARD_QUERY: 'is_debug,x', LOG_LEVEL: 'warn' },
  });
  opened.push(relay, service);
  const victim = await relay.signIn();
  const message = JSON.stringify({ customChannelId: VICTIM.id, text: 'hi' });
  await (await relay.send(victim, { path: PATH, body: message })).text();
  service.secretId = service.requests[0]?.exact[0] ?? '';
  // This user sees their own conversation.
  expect(await (await relay.send(victim, { path: PATH, body: message })).text()).toContain(
    service.secretText,
  );
  service.requests.length = 0;
  const next = conversationAttacks({ ...VICTIM, upstream: service.secretId }, SEED);
  const cookie = await relay.signIn(OTHER_USER);
  return { service, relay, attack: (tries: number) => attackAll(relay.port, { next, cookie, tries }) };
}

async function attackAll(
  port: number,
  { next, cookie, tries }: { next: () => Attack; cookie: string; tries: number },
): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  let left = tries;
  const one = async () => {
    while (left-- > 0) {
      const attack = next();
      outcomes.push(await send(port, cookie, attack));
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

/** The requests in which an id is found that the relay has not made. */
const notMapped = ({ requests }: LaxService) =>
  requests.filter(({ found }) => found.some((id) => !UPSTREAM_ID.test(id)));
const ofVictim = ({ requests, secretId }: LaxService) =>
  requests.filter(({ found }) => found.includes(secretId));

/** Whether it was a fault of the relay, as an answer or in a stream. */
const isFault = ({ status, body }: { readonly status: number; readonly body: string }) =>
  status === 500 || body.includes('"code":"internal_error"');

describe("another user's conversation", () => {
  test(`is not reached by ${TRIES} tries, however lax the bot service is`, async () => {
    const { service, attack } = await startAttack();
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

  test('is reached by such tries without a relay, in each way of a lax service, so that they are worth something', async () => {
    const service = await startLaxService();
    opened.push(service);
    service.secretId = 'f0'.repeat(32);
    const next = conversationAttacks({ ...VICTIM, upstream: service.secretId }, SEED);
    const port = Number(new URL(service.url).port);
    const outcomes = await attackAll(port, { next, cookie: '', tries: 2_000 });
    expect(outcomes.some(({ body }) => body.includes(service.secretText))).toBe(true);
    for (const paths of ['namesBox', 'leavesFolder'] as const)
      expect(service.requests.filter((one) => one[paths])).not.toEqual([]);
    expect(service.requests.filter(({ exact }) => exact.includes(service.secretId))).not.toEqual([]);
    const byLaxity = ofVictim(service).filter(({ exact }) => !exact.includes(service.secretId));
    expect(byLaxity.length).toBeGreaterThan(100);
  }, 60_000);
});
