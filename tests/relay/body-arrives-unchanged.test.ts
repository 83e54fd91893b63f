import { afterEach, describe, expect, test } from '@jest/globals';
import { failureOf } from '../harness/clients/error-event.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
} from '../harness/relay/relay-and-upstream.ts';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

describe('a body arrives upstream byte for byte,', () => {
  test.each([
    ['white space', ' {\t"text" :\r\n"a" ,\n\n"b":[ ] } \n'],
    ['key order and repeated keys', '{"z":1,"10":1,"a":2,"2":3,"z":4,"__proto__":{"x":1}}'],
    ['escapes', '{"a":"\\u0061\\/\\ud83d\\ude00\\ud800\\u2028","\\u0062":"é😀\u2028"}'],
    ['numbers', '{"a":9007199254740993,"b":1.0,"c":1e400,"d":-0,"e":0.1000000000000000055511151231257827}'],
    ['string instead of an object', ' "text"'],
  ])('with its %s', async (_name, body) => {
    pair = await startRelayAndUpstream((socket) => socket.write(plainAnswer('400 No', [])), {
      CHANNELS: 'shared',
    });
    const client = pair.ask({ body, headers: ['Connection: close'] });
    await client.closed;
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.upstream.requests[0]?.body.toString('latin1')).toBe(Buffer.from(body).toString('latin1'));
    expect(pair.upstream.requests[0]?.all('content-length')).toEqual([String(Buffer.byteLength(body))]);
    expect(pair.upstream.requests[0]?.all('transfer-encoding')).toEqual([]);
  });

  test('when it arrives in several chunks', async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(plainAnswer('400 No', [])));
    const body = `{"text" : "${'😀x'.repeat(50_000)}"}`;
    const response = await pair.relay.send(pair.cookie, {
      body: new Blob([body]).stream(),
      duplex: 'half',
    } as RequestInit);
    expect(await failureOf(response)).toMatchObject({ status: 400, code: 'upstream_refused' });
    expect(pair.upstream.requests[0]?.body.equals(Buffer.from(body))).toBe(true);
  });
});
