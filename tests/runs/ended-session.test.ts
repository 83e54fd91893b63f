import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import {
  bodyOf,
  EVENTS,
  INIT,
  type JoinPair,
  messageBody,
  startJoinPair,
  statusOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';

let pair: JoinPair;
let late: RawClient | undefined;
afterEach(async () => {
  late?.socket.destroy();
  late = undefined;
  await pair.close();
});

const TAIL_BYTES = 5;

/** A second session, whose message has come but for its last bytes. */
async function lateMessage() {
  const cookie = await pair.relay.signIn();
  const all = rawMessage({ cookie, body: messageBody(), headers: ['Connection: close'] });
  const before = pair.relay.open.count();
  const client = rawClient(pair.relay.port, all.slice(0, -TAIL_BYTES));
  late = client;
  await until(() => pair.relay.open.count() > before);
  return {
    client,
    signOut: () => call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } }),
    finish: () => client.socket.write(all.slice(-TAIL_BYTES)),
  };
}

async function expectRefused(client: RawClient) {
  const body = await bodyOf(client);
  expect([statusOf(client), body]).toEqual([401, expect.stringContaining('"code":"session_ended"')]);
}

describe('a message whose session ends while its body arrives', () => {
  test('gets no answer that is kept', async () => {
    pair = await startJoinPair({}, () => EVENTS);
    const first = pair.say();
    await first.waitFor('run.done');
    pair.finish();
    expect(await bodyOf(first)).toBe(WHOLE);
    const { client, signOut, finish } = await lateMessage();
    await signOut();
    finish();
    await expectRefused(client);
  });

  test('gets no event of a run that goes on', async () => {
    pair = await startJoinPair({}, () => [INIT]);
    await pair.say().waitFor('run.init');
    const { client, signOut, finish } = await lateMessage();
    await signOut();
    finish();
    await expectRefused(client);
  });

  test('does not end a run that another session has left', async () => {
    pair = await startJoinPair({}, () => [INIT]);
    const first = pair.say();
    await first.waitFor('run.init');
    const { client, signOut, finish } = await lateMessage();
    await signOut();
    first.socket.destroy();
    await until(() => pair.relay.open.count() === 1);
    const { service } = pair;
    finish();
    await client.closed;
    const back = pair.say();
    await back.waitFor('run.init');
    expect(service.destroyed).toBe(false);
  });
});
