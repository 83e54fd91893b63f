import { describe, expect, test } from '@jest/globals';
import { channelInJson, channelInQuery, withChannel } from '../../src/guard/channel-places.ts';
import { codeThrownBy } from '../harness/relay/thrown-problem.ts';

const inJson = (text: string) => channelInJson(Buffer.from(text));

/** Names that some service reads as `customChannelId`, or may read: all that are not ASCII. */
const SIMILAR = [
  ...['custom_channel_id', 'CustomChannelId', 'CUSTOMCHANNELID', 'customchannelid', 'custom-channel-id'],
  ...[
    'customChannelId ',
    ' customChannelId',
    'customChannelId\u200b',
    'customChannelId\u0000',
    'customChannelId[]',
  ],
  ...[
    'customChannelId[0]',
    'customChannelId.x',
    'ｃustomChannelId',
    'cuſtomChannelId',
    'custom\u00adChannelId',
  ],
  ...[
    'customChannelId\u0301',
    '__customChannelId__',
    'customChannelİd',
    'CUSTOM CHANNEL ID',
    'customChannelId\n',
  ],
  ...[
    'customChannelId\u0000x',
    'customChannelıd',
    'customChannelId/x',
    'customChannelId:x',
    ' customChannelId]x',
  ],
  ...[
    'customChannelId x',
    'customChannelId\u2028x',
    'customChannelId™x',
    'ⓒustomChannelId',
    'customChannelId_\tx',
  ],
  // A mark that becomes a letter in upper case, and one that becomes this mark.
  ...['custom\u0345ChannelId', 'custom\u037aChannelId', 'größe'],
  ...['custom\u3164ChannelId', '\u115fcustomChannelId', 'customChannelId\uffa0', 'custom_channel_id;x'],
];

/** Names that no service reads as `customChannelId`. */
const OTHERS = [
  'customChannelIds',
  'customChannelId_x',
  'customChannelId-x',
  'myCustomChannelId',
  'x[customChannelId]',
];

describe('the id of a conversation in JSON', () => {
  test.each([
    ['{"customChannelId":"c1","text":"Hi"}', 'c1'],
    ['{ "text" : "Hi" , "custom\\u0043hannelId" : "\\u0063\\"1" }', 'c"1'],
    ['{"customChannelId":"😀"}', '😀'],
    ['{"payload":{"customChannelId":"other"},"customChannelId":"mine"}', 'mine'],
  ])('of %s is %s', (json, id) => {
    expect(inJson(json)?.id).toBe(id);
  });

  test.each(['{"text":"customChannelId"}', '{"payload":{"custom_channel_id":"x"}}', '{}', '[]', '1'])(
    'is none in %s',
    (json) => expect(inJson(json)).toBeUndefined(),
  );

  test.each(SIMILAR)('is not taken from the name %j, alone or beside the exact one', (name) => {
    const similar = `${JSON.stringify(name)}:"x"`;
    for (const json of [
      `{${similar}}`,
      `{"customChannelId":"c1",${similar}}`,
      `{${similar},"customChannelId":"c1"}`,
    ])
      expect(codeThrownBy(() => inJson(json))).toBe('invalid_conversation');
  });

  test.each(OTHERS)('can stand beside the name %j', (name) =>
    expect(inJson(`{"${name}":"x","customChannelId":"c1"}`)?.id).toBe('c1'),
  );

  test.each([
    '{"customChannelId":"a","customChannelId":"a"}',
    '{"customChannelId":"a","\\u0063ustomChannelId":"b"}',
  ])('must stand once: %s', (json) => expect(codeThrownBy(() => inJson(json))).toBe('invalid_conversation'));

  test.each(['""', 'null', '7', '["c1"]', '{"a":"c1"}', 'true', '"\\ud800"', `"${'x'.repeat(257)}"`])(
    'cannot be %s',
    (value) =>
      expect(codeThrownBy(() => inJson(`{"customChannelId":${value}}`))).toBe('invalid_conversation'),
  );

  test.each([
    ['a name that is too long', `{"text":"hi","${'x'.repeat(129)}":0}`],
    ['too many names', `{${Array.from({ length: 1_001 }, (_, i) => `"${i}":0`).join()}}`],
  ])('is not looked for behind %s', (_what, json) =>
    expect(codeThrownBy(() => inJson(json))).toBe('invalid_conversation'),
  );

  test('is found beside as many and as long names as there may be', () => {
    const names = Array.from({ length: 999 }, (_, i) => `"${String(i).padEnd(128, 'x')}":0`);
    expect(inJson(`{${names.join()},"customChannelId":"c1"}`)?.id).toBe('c1');
  });

  test('is looked for quickly in a body that is made to be slow', () => {
    // Folding these marks takes minutes, which is longer than a test may take.
    const marks = `${'\u0301'.repeat(200_000)}${'\u0327'.repeat(200_000)}`;
    const many = Array.from({ length: 170_000 }, () => '"":0').join();
    for (const members of [`"${marks}":0`, many])
      expect(codeThrownBy(() => inJson(`{"text":"hi",${members}}`))).toBe('invalid_conversation');
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
  ])('of %s is %s', (url, id) => expect(channelInQuery(url)).toBe(id));

  test.each(['/x', '/x?', '/x?a=custom_channel_id', '/x?channel=1'])('is none in %s', (url) =>
    expect(channelInQuery(url)).toBeUndefined(),
  );

  test.each(
    SIMILAR.filter((name) => name !== 'custom_channel_id').concat('customChannelId', 'custom_channel_id[]'),
  )('is not taken from the name %j', (name) => {
    const similar = `${encodeURIComponent(name)}=x`;
    for (const query of [similar, `custom_channel_id=a&${similar}`, `${similar}&custom_channel_id=a`])
      expect(codeThrownBy(() => channelInQuery(`/x?${query}`))).toBe('invalid_conversation');
  });

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
  ])('is refused in %s', (query, code) =>
    expect(codeThrownBy(() => channelInQuery(`/x?${query}`))).toBe(code),
  );
});
