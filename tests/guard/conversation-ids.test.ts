import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { channelInJson, channelInQuery, withChannel } from '../../src/guard/channel-places.ts';
import { scopedChannelId } from '../../src/guard/scoped-channels.ts';
import { secret } from '../../src/secret.ts';
import { codeThrownBy } from '../harness/relay/thrown-problem.ts';

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
