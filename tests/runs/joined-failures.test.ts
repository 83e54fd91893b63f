import { afterEach, describe, expect, test } from '@jest/globals';
import {
  bodyOf,
  errorEventOf,
  INIT,
  type JoinPair,
  messageBody,
  problemOf,
  startJoinPair,
} from '../harness/clients/joining.ts';
import { jsonAnswer, suspend } from '../harness/clients/suspend.ts';
import { plainAnswer, until } from '../harness/relay/relay-and-upstream.ts';

let pair: JoinPair;
afterEach(() => pair.close());

const other = { text: 'other', customMessageId: 'another-message-01' };

describe('all who wait for a message', () => {
  test('get its failure as a stream, also those who ask for it by its id alone', async () => {
    pair = await startJoinPair({}, () => undefined);
    const asked = pair.upstream.nextRequest();
    const clients = [pair.say()];
    await asked;
    clients.push(pair.say(), pair.byName());
    await until(() => pair.relay.open.count() === 3);
    pair.service.write(plainAnswer('500 No', []));
    for (const client of [...clients, pair.say(), pair.byName()]) {
      expect(await errorEventOf(client)).toMatchObject({
        ...{ code: 'upstream_bad_response', status: 502 },
        ...{ maybeStarted: true, retryable: false },
      });
    }
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('are told that it was stopped', async () => {
    pair = await startJoinPair(
      { RATE_LIMIT: '1', RATE_WINDOW_MS: '300000', RATE_MAX_WAIT_MS: '600000' },
      ({ requestLine }, socket) => {
        if (!requestLine.includes('/suspend')) return [INIT];
        socket.write(jsonAnswer('404 Not Found', {}));
        return undefined;
      },
    );
    await pair.say({ ...other, customChannelId: 'c2' }).waitFor('run.init');
    const clients = [pair.say(), pair.say()];
    await pair.relay.logLine(({ msg }) => msg === 'run joined');
    expect((await suspend(pair)).status).toBe(200);
    for (const client of clients) expect(await bodyOf(client)).toContain('"code":"stopped"');
    expect(pair.upstream.requests.filter(({ requestLine }) => requestLine.includes('/sse'))).toHaveLength(1);
  });

  test('are refused with it by the budget, each time', async () => {
    pair = await startJoinPair({ RATE_LIMIT: '1', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' }, () => [
      INIT,
    ]);
    const taken = pair.say(other);
    await taken.waitFor('run.init');
    expect(taken.text()).toMatch(/^RateLimit: "endpoint";r=0;t=\d+\r$/m);
    for (let n = 0; n < 2; n++) {
      const refused = pair.say();
      expect(await problemOf(refused)).toMatchObject({ code: 'rate_limited', retryable: 'new message' });
      expect(refused.text()).toMatch(/^RateLimit-Policy: "endpoint";q=1;w=600\r$/m);
      expect(refused.text()).toMatch(/^Retry-After: \d+\r$/m);
    }
    expect(pair.upstream.requests).toHaveLength(1);
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
