import { afterEach, expect, jest, test } from '@jest/globals';
import { call } from '../support/call.ts';
import { type JoinInstances, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, EVENTS, INIT, problemOf, WHOLE } from '../support/joining.ts';
import { chunk, LAST_CHUNK, type RawRequest, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import { BOT_PATH, type TestRelay } from '../support/relay.ts';
import { plainAnswer } from '../support/relay-and-upstream.ts';

jest.setTimeout(30_000);

let all: JoinInstances;
afterEach(() => all.close());

const isReset = ({ body }: RawRequest) => String(body).includes('RESET_CHANNEL');
const isMessage = (request: RawRequest) => request.requestLine.includes('/sse') && !isReset(request);

/** Each message has begun and goes on; a reset is a whole answer, all else succeeds. */
const start = () =>
  startJoinInstances(2, {}, (request, socket) => {
    if (isMessage(request)) return [INIT];
    socket.write(isReset(request) ? wholeStream(...EVENTS) : plainAnswer('204 No Content', []));
    return undefined;
  });

async function operation(at: number, method: string, path: string): Promise<void> {
  const url = `${BOT_PATH.replace('message/sse', path)}?custom_channel_id=c1`;
  const { port } = all.relays[at] as TestRelay;
  expect((await call(port, url, { method, headers: { Cookie: all.cookie } })).status).toBe(204);
}

const RESET = { action: 'RESET_CHANNEL', text: '', customMessageId: 'reset-000000000001' };
const WAYS: Record<string, (at: number) => Promise<unknown>> = {
  'a message with the action of a reset': async (at) => expect(await bodyOf(all.say(at, RESET))).toBe(WHOLE),
  'DELETE channel': (at) => operation(at, 'DELETE', 'channel'),
  'POST channel/clear': (at) => operation(at, 'POST', 'channel/clear'),
};

const messages = () => all.upstream.requests.filter(isMessage);

/** Ends the streams of all messages. */
function finishAll(): void {
  for (const [n, request] of all.upstream.requests.entries()) {
    if (isMessage(request)) {
      all.streams[n]?.write(Buffer.concat([...EVENTS.slice(1).map(chunk), Buffer.from(LAST_CHUNK)]));
    }
  }
}

const CASES = Object.keys(WAYS).flatMap((way) => [
  { way, holder: 0, other: 1 },
  { way, holder: 1, other: 0 },
]);

describeWithRedis('a run that goes on at one instance', () => {
  test.each(CASES)('has its name forgotten by $way at another: $other for $holder', async (one) => {
    const { way, holder, other } = one;
    all = await start();
    const old = all.say(holder);
    await old.waitFor('run.init');
    // Until then, the message joins its run.
    await all.say(other).waitFor('run.init');
    expect(messages()).toHaveLength(1);
    await WAYS[way]?.(other);
    for (const at of [holder, other]) {
      expect(await problemOf(all.byName(at))).toMatchObject({ code: 'run_over' });
    }
    const again = all.say(holder);
    await again.waitFor('run.init');
    expect(messages()).toHaveLength(2);
    // The new run is that of both, and the old one goes on for those who read it.
    const joined = [all.say(other), all.byName(holder), all.byName(other)];
    for (const client of joined) await client.waitFor('run.init');
    expect(messages()).toHaveLength(2);
    finishAll();
    for (const client of [old, again, ...joined]) expect(await bodyOf(client)).toBe(WHOLE);
    for (const at of [holder, other]) expect(await bodyOf(all.say(at))).toBe(WHOLE);
    expect(messages()).toHaveLength(2);
  });
});
