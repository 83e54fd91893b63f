import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { errorEventIn, failureOf } from '../harness/clients/error-event.ts';
import { CANARY, expectNoCanary } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
} from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK } from '../harness/service/raw-upstream.ts';

const JSON_TYPE = 'Content-Type: application/json';

let pair: RelayAndUpstream;
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
});

/** The answer to the client if the upstream answers with `bytes`. */
async function answerTo(bytes: string, environment = {}) {
  pair = await startRelayAndUpstream((socket) => void socket.end(bytes), environment);
  const response = await pair.relay.send(pair.cookie);
  const text = await response.text();
  expectNoCanary(text);
  expect(response.status).toBe(200);
  expect(response.headers.get('retry-after')).toBeNull();
  return { response, text, problem: errorEventIn(text) };
}

describe('a message that the bot service refuses', () => {
  test.each([400, 404, 409, 413, 415, 422])(
    'with %d and JSON is answered with an error of the same status and JSON',
    async (status) => {
      const body = { code: 'E1', nested: [{ text: 'no', at: null }, 1, true] };
      const { response, problem } = await answerTo(
        plainAnswer(`${status} No`, [JSON_TYPE], JSON.stringify(body)),
      );
      expect(response.headers.get('content-type')).toBe('text/event-stream');
      expect(problem).toMatchObject({ status, code: 'upstream_refused', upstream: body });
    },
  );

  test.each([
    ['unchanged', CANARY.key],
    ['with escapes', `\\u0063anary-${CANARY.key.slice(7).replace('k', '\\u006B').replace('-', '\\u002d')}`],
    ['as the second key', CANARY.secondKey],
  ])('shows no key, also if it is written %s', async (_name, key) => {
    const body = `{"message":"bad key ${key}, ${key}!","list":["${key}"],"${key}":1}`;
    const { problem } = await answerTo(plainAnswer('400 No', [JSON_TYPE], body), {
      UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
    });
    expect(problem.upstream).toEqual({
      message: 'bad key [secret], [secret]!',
      list: ['[secret]'],
      '[secret]': 1,
    });
  });

  test('shows no part of a key that contains another key', async () => {
    const { problem } = await answerTo(
      plainAnswer('400 No', [JSON_TYPE], `{"message":"bad key ${CANARY.key}!"}`),
      { UPSTREAM_API_KEYS: `${CANARY.key.slice(0, 10)},${CANARY.key}` },
    );
    expect(problem.upstream).toEqual({ message: 'bad key [secret]!' });
  });

  test('shows no key that arrives in several chunks', async () => {
    const body = `{"message":"bad key ${CANARY.key}!"}`;
    pair = await startRelayAndUpstream((socket) => {
      socket.write(`HTTP/1.1 400 No\r\n${JSON_TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n`);
      for (const letter of body) socket.write(chunk(letter));
      socket.end(LAST_CHUNK);
    });
    const problem = await failureOf(await pair.relay.send(pair.cookie));
    expect(problem.upstream).toEqual({ message: 'bad key [secret]!' });
  });

  test('shows up to 8 KiB of JSON and no more', async () => {
    const jsonOf = (length: number) => JSON.stringify('x'.repeat(length - 2));
    const fits = await answerTo(plainAnswer('400 No', [JSON_TYPE], jsonOf(8192)));
    expect(fits.problem.upstream).toHaveLength(8190);
    await pair.close();
    const tooLong = await answerTo(plainAnswer('400 No', [JSON_TYPE], jsonOf(8193)));
    expect(tooLong.problem).toMatchObject({ status: 400, code: 'upstream_refused' });
    expect(tooLong.problem).not.toHaveProperty('upstream');
  });

  test.each([
    ['HTML', plainAnswer('422 No', ['Content-Type: text/html'], '<p>leak</p>')],
    ['an empty body', plainAnswer('422 No', [])],
    ['JSON that breaks off', `HTTP/1.1 422 No\r\n${JSON_TYPE}\r\nContent-Length: 99\r\n\r\n{"leak":1}`],
  ])('with %s shows no part of the body', async (_name, bytes) => {
    const { text, problem } = await answerTo(bytes);
    expect(problem).toMatchObject({ status: 422, code: 'upstream_refused' });
    expect(problem).not.toHaveProperty('upstream');
    expect(text).not.toContain('leak');
    expect(pair.upstream.requests).toHaveLength(1);
  });
});

/** Otherwise the message would wait and be sent again; see guard/busy-service.test.ts. */
const NO_WAIT = { RATE_MAX_WAIT_MS: '0' };

describe('a message that the bot service answers with 429', () => {
  const busy = (...headers: string[]) => plainAnswer('429 Busy', [JSON_TYPE, ...headers], '{"leak":1}');

  test.each([
    ['17 seconds', 'Retry-After: 17', 17],
    ['no header', 'X-Nothing: 1', 1],
    ['nonsense', 'Retry-After: soon', 1],
    ['zero', 'Retry-After: 0', 1],
    ['a date in the past', 'Retry-After: Wed, 21 Oct 2015 07:28:00 GMT', 1],
    ['a minute', 'Retry-After: 60', 60],
    ['a day', 'Retry-After: 86400', 60],
    ['a year', 'Retry-After: 31536000', 60],
  ])('is told the Retry-After of the service, at most a minute, for %s', async (_name, header, seconds) => {
    const { text, problem } = await answerTo(busy(header), NO_WAIT);
    expect(problem).toMatchObject({ status: 429, code: 'upstream_rate_limited', retryAfter: seconds });
    expect(text).not.toContain('leak');
  });

  test('is told to wait until the date in the Retry-After of the service', async () => {
    const now = 1_800_000_000_000;
    jest.spyOn(Date, 'now').mockReturnValue(now);
    const date = new Date(now + 45_000).toUTCString();
    const { problem } = await answerTo(busy(`Retry-After: ${date}`), NO_WAIT);
    expect(problem.retryAfter).toBe(45);
  });
});
