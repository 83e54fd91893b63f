import { describe, expect, test } from '@jest/globals';
import { type NamedMessage, resetsConversation, runName } from '../../src/runs/run-name.ts';

const ID = '0123456789abcdef';
const MESSAGE: NamedMessage = {
  ...{ user: 'ada', bot: 'acme/helper', channel: 'c1', query: '', headers: {} },
  ...{ value: { customMessageId: ID, text: 'hi', action: 'NONE' }, bytes: Buffer.from('body') },
};
const name = (changes: Partial<NamedMessage> = {}) => runName({ ...MESSAGE, ...changes });
const withBody = (changes: object) => name({ value: { ...(MESSAGE.value as object), ...changes } });

describe('the name of a message', () => {
  test.each<[string, Partial<NamedMessage>]>([
    ['user', { user: 'bob' }],
    ['bot', { bot: 'acme/other' }],
    ['conversation', { channel: 'c2' }],
    ['id', { value: { customMessageId: `${ID}0`, text: 'hi' } }],
    ['body', { bytes: Buffer.from('other') }],
    ['query', { query: 'is_debug=true' }],
  ])('is another one with another %s', (_what, changes) => {
    expect(name(changes).key).not.toBe(name().key);
    expect(name()).toEqual(name());
  });

  test('has its message and conversation in common with that of another body', () => {
    const { key, ...rest } = name({ bytes: Buffer.from('other') });
    expect(name()).toMatchObject(rest);
    expect(key).toMatch(/^[\w-]{43}$/);
  });

  test.each([undefined, '', 7, null, 'x'.repeat(257)])(
    'is that of its bytes with the id %p, and not kept after its end',
    (customMessageId) => {
      const unnamed = withBody({ customMessageId });
      expect(unnamed).toMatchObject({ message: undefined, outlivesRun: false });
      expect(withBody({ customMessageId })).toEqual(unnamed);
      const value = { customMessageId, text: 'hi' };
      expect(name({ value, bytes: Buffer.from('other') }).key).not.toBe(unnamed.key);
      expect(name({ value, user: 'bob' }).key).not.toBe(unnamed.key);
    },
  );

  test('has the id of Idempotency-Key only if the body has none', () => {
    const headers = { 'idempotency-key': `${ID}1` };
    expect(name({ headers })).toEqual(name());
    const value = { text: 'hi' };
    expect(name({ headers, value }).message).toBe(withBody({ customMessageId: `${ID}1` }).message);
    expect(name({ headers: {}, value: [] }).message).toBeUndefined();
  });

  test.each<[boolean, object]>([
    [true, {}],
    [true, { action: undefined }],
    [true, { text: '', blobIds: ['b'] }],
    [false, { text: '' }],
    [false, { text: '', blobIds: [] }],
    [false, { action: 'RESET_CHANNEL' }],
    [false, { action: 'RESPONSE_TOOL_CALL_CONSENT' }],
    [false, { action: 'none' }],
    [false, { customMessageId: ID.slice(1) }],
  ])('outlives its run: %p, with %j', (outlivesRun, changes) => {
    expect(withBody(changes).outlivesRun).toBe(outlivesRun);
  });

  test('resets its conversation only with that action', () => {
    expect(resetsConversation({ action: 'RESET_CHANNEL' })).toBe(true);
    expect([{}, [], null, 'RESET_CHANNEL'].map(resetsConversation)).toEqual([false, false, false, false]);
  });
});
