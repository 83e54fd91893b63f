import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { bodyOf, EVENTS, INIT, type JoinPair, startJoinPair } from '../harness/clients/joining.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { plainAnswer, until } from '../harness/relay/relay-and-upstream.ts';

let pair: JoinPair;
afterEach(() => pair.close());

const lines = (msg: string) => pair.relay.logs.filter((line) => line.msg === msg);
/** The lines of messages, not of the sign-in. */
const requests = () => lines('request').filter(({ bot }) => bot !== undefined);
const ends = () => lines('run ended without a client');

/** Sends a message whose stream has begun; resolves with its client. */
async function begin(environment: Record<string, string> = {}): Promise<RawClient> {
  pair = await startJoinPair({ RESUME_UPSTREAM: 'off', ...environment }, () => [INIT]);
  const client = pair.say();
  await client.waitFor('run.init');
  return client;
}

/** Closes the client's connection; resolves when the relay has written its line. */
async function leave(client: RawClient) {
  client.socket.destroy();
  await until(() => requests().length === 1);
}

describe('a run that ends without a client has its own line in the log', () => {
  test('if it breaks off', async () => {
    await leave(await begin());
    pair.service.destroy();
    await until(() => ends().length === 1);
    const [request] = requests();
    expect(ends()[0]).toMatchObject({
      ...{ level: 'warn', outcome: 'upstream_stream_broken', cause: 'ECONNRESET', notResumed: 'off' },
      ...{ requestId: request?.requestId, userId: request?.userId, bot: request?.bot, upstreamStatus: 200 },
    });
  });

  test('if the service fails', async () => {
    pair = await startJoinPair({}, () => undefined);
    const asked = pair.upstream.nextRequest();
    const client = pair.say();
    await asked;
    await leave(client);
    pair.service.write(plainAnswer('500 No', []));
    await until(() => ends().length === 1);
    expect(ends()[0]).toMatchObject({
      ...{ level: 'warn', outcome: 'upstream_bad_response', upstreamStatus: 500 },
    });
  });

  test('if its deadline ends it', async () => {
    const timers = jest.spyOn(globalThis, 'setTimeout');
    await leave(await begin({ MAX_EXECUTION_MS: '50000' }));
    const [endIt] = timers.mock.calls.find(([, ms]) => ms === 50_000) ?? [];
    advanceClocks({ monotonic: 60_000 });
    (endIt as () => void)();
    jest.restoreAllMocks();
    await until(() => ends().length === 1);
    expect(ends()[0]).toMatchObject({ level: 'warn', outcome: 'deadline_exceeded' });
    expect(await bodyOf(pair.say())).toContain('"code":"deadline_exceeded"');
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('and none if it ends well, is given up, or has a client', async () => {
    await leave(await begin({ JOIN_GRACE_MS: '1' }));
    await until(() => lines('run without a client').length === 1);
    const other = pair.say({ customMessageId: 'message-0000000002' });
    await other.waitFor('run.init');
    pair.service.destroy();
    await bodyOf(other);
    await until(() => requests().length === 2);
    expect(ends()).toEqual([]);
    await pair.close();
    await leave(await begin());
    pair.emit(...EVENTS.slice(1));
    pair.finish();
    await until(() => lines('run without a client').length === 1);
    expect(ends()).toEqual([]);
  });
});

test('the line of a request that has joined a run says what that of the first says', async () => {
  const clients = [await begin(), pair.say()];
  await clients[1]?.waitFor('run.init');
  pair.service.destroy();
  await Promise.all(clients.map(bodyOf));
  await until(() => requests().length === 2);
  await bodyOf(pair.say());
  await until(() => requests().length === 3);
  for (const line of requests())
    expect(line).toMatchObject({
      ...{ outcome: 'upstream_stream_broken', cause: 'ECONNRESET', notResumed: 'off', upstreamStatus: 200 },
    });
});
