import { afterEach, describe, expect, jest, test } from '@jest/globals';
import {
  bodyOf,
  INIT,
  type JoinPair,
  messageBody,
  problemOf,
  startJoinPair,
  statusOf,
} from '../support/joining.ts';
import { NO_SUCH_CHANNEL } from '../support/owned.ts';
import { plainAnswer, until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';
import { jsonAnswer, suspend } from '../support/suspend.ts';
import { whileAwake } from '../support/while-awake.ts';

jest.setTimeout(20_000);

let pair: JoinPair;
afterEach(() => pair.close());

const other = { text: 'other', customMessageId: 'another-message-01' };

describe('all who wait for a message', () => {
  test('get its failure as a stream with FAILURES=stream', async () => {
    pair = await startJoinPair({ FAILURES: 'stream' }, () => undefined);
    const asked = pair.upstream.nextRequest();
    const clients = [pair.say()];
    await asked;
    clients.push(pair.say());
    await until(() => pair.relay.open.count() === 2);
    pair.service.write(plainAnswer('500 No', []));
    for (const client of [...clients, pair.say()]) {
      const body = await bodyOf(client);
      expect(statusOf(client)).toBe(200);
      expect(body).toContain('"code":"upstream_bad_response"');
      expect(body).toContain('"maybeStarted":true');
    }
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test(
    'are told that it was stopped, after which it may be sent',
    whileAwake(
      async () => {
        pair = await startJoinPair(
          { RATE_LIMIT: '1', RATE_WINDOW_MS: '2500', RATE_MAX_WAIT_MS: '5000' },
          ({ requestLine }, socket) => {
            if (!requestLine.includes('/suspend')) return [INIT];
            socket.write(jsonAnswer('404 Not Found', {}));
            return undefined;
          },
        );
        await pair.say({ ...other, customChannelId: 'c2' }).waitFor('run.init');
        const clients = [pair.say(), pair.say()];
        await until(() => pair.relay.open.count() === 3);
        await until(() => pair.relay.logs.some(({ msg }) => msg === 'run joined'));
        expect((await suspend(pair)).status).toBe(200);
        for (const client of clients) expect(await bodyOf(client)).toContain('"code":"stopped"');
        await pair.say().waitFor('run.init');
        expect(pair.upstream.requests.filter(({ requestLine }) => requestLine.includes('/sse'))).toHaveLength(
          2,
        );
      },
      () => pair.close(),
    ),
  );

  test('are refused with it by the budget, and it may be sent again', async () => {
    pair = await startJoinPair({ RATE_LIMIT: '1', RATE_WINDOW_MS: '1000', RATE_MAX_WAIT_MS: '0' }, () => [
      INIT,
    ]);
    await pair.say(other).waitFor('run.init');
    const refused = pair.say();
    expect(await problemOf(refused)).toMatchObject({ code: 'rate_limited', retryable: 'new message' });
    expect(refused.text()).toMatch(/^RateLimit-Policy: "endpoint";q=1;w=1\r$/m);
    expect(refused.text()).toMatch(/^Retry-After: \d+\r$/m);
    await sleep(1_200);
    const taken = pair.say();
    await taken.waitFor('run.init');
    expect(taken.text()).toMatch(/^RateLimit: "endpoint";r=0;t=\d+\r$/m);
    expect(pair.upstream.requests).toHaveLength(2);
  });
});

test('a body that is not whole joins nothing, and gives its place back', async () => {
  pair = await startJoinPair({ MAX_STREAMS_PER_USER: '1' }, () => [INIT]);
  await pair.say().waitFor('run.init');
  const body = messageBody();
  for (let n = 0; n < 20; n++) {
    const half = pair.ask({ body: body.slice(0, -1), headers: ['Connection: close'] });
    expect(await problemOf(half)).toMatchObject({ code: 'invalid_json' });
  }
  await pair.say().waitFor('run.init');
  expect(pair.upstream.requests).toHaveLength(1);
});

test('a message that begins a conversation and finds no place asks the service nothing', async () => {
  pair = await startJoinPair({ CHANNELS: 'owned', MAX_STREAMS_PER_USER: '1' }, ({ requestLine }, socket) => {
    if (!requestLine.includes('/channel/metadata')) return [INIT];
    socket.write(NO_SUCH_CHANNEL);
    return undefined;
  });
  await pair.say().waitFor('run.init');
  expect(pair.upstream.requests).toHaveLength(2);
  const refused = pair.say({ customChannelId: 'c2', customMessageId: 'message-0000000002' });
  expect(await problemOf(refused)).toMatchObject({ code: 'too_many_streams' });
  expect(pair.upstream.requests).toHaveLength(2);
});
