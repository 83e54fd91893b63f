import { expect, test } from '@jest/globals';
import { secretNamesIn } from '../../src/check/operations/secret-names.ts';

test.each<[unknown, string[]]>([
  [{ apiKey: 'abc' }, ['apiKey']],
  [{ data: { llm: [{ API_KEY: 'abc' }] } }, ['data.llm.0.API_KEY']],
  [{ annotations: { 'acme/client-secret': 'abc' } }, ['annotations.acme/client-secret']],
  [{ env: [{ name: 'DB_PASSWORD', value: 'abc' }] }, ['env.0.DB_PASSWORD']],
  [{ headers: { Authorization: 'Bearer abc' } }, ['headers.Authorization']],
  [{ accessToken: 'abc' }, ['accessToken']],
  [{ tls: '-----BEGIN EC PRIVATE KEY-----\nabc' }, ['tls']],
])('a member that is named like a secret and has a value is found: %#', (json, names) => {
  expect(secretNamesIn(json)).toEqual(names);
});

test.each<[unknown]>([
  [undefined],
  ['apiKey'],
  [{ apiKey: '' }],
  [{ apiKey: '****' }],
  [{ apiKey: null, token: 7, hasPassword: true }],
  [{ maxTokens: '4000', title: 'How to reset a password' }],
  [{ name: 'echo', value: 'abc' }],
])('nothing else is: %#', (json) => {
  expect(secretNamesIn(json)).toEqual([]);
});

test('many names are cut, and so is what is nested too deeply', () => {
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`apiKey${i}`, 'abc']));
  expect(secretNamesIn(many)).toHaveLength(10);
  let deep: unknown = { apiKey: 'abc' };
  for (let i = 0; i < 50; i++) deep = { deep };
  expect(secretNamesIn(deep)).toEqual([]);
});
