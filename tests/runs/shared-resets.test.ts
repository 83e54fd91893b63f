import { afterEach, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { bodyOf, EVENTS, INIT, problemOf, WHOLE } from '../harness/clients/joining.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, runsEnded, startJoinInstances } from '../harness/relay/join-instances.ts';
import { BOT_PATH, type TestRelay } from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, type RawRequest, wholeStream } from '../harness/service/raw-upstream.ts';

let all: JoinInstances;
afterEach(() => all.close());

const textIn = ({ body }: RawRequest) => String(body);
const isReset = (request: RawRequest) => textIn(request).includes('RESET_CHANNEL');
const isMessage = (request: RawRequest) => request.requestLine.includes('/sse') && !isReset(request);

const ENDED_ID = 'message-that-ended';
const ENDED = { text: 'short', customMessageId: ENDED_ID };

/** A message with a short text and a reset are whole answers; other messages have begun and go on; all else succeeds. */
const start = () =>
  startJoinInstances(2, {}, (request, socket) => {
    if (isMessage(request) && !textIn(request).includes('short')) return [INIT];
    const isStream = request.requestLine.includes('/sse');
    socket.write(isStream ? wholeStream(...EVENTS) : plainAnswer('204 No Content', []));
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

const messages = () => all.upstream.requests.filter(isMessage).length;

describeWithRedis('the names of a conversation', () => {
  test.each(Object.keys(WAYS))(
    'are forgotten at all instances by %s if their runs have ended, and no others',
    async (way) => {
      all = await start();
      const live = all.say(0);
      await live.waitFor('run.init');
      const [stream] = all.streams;
      expect(await bodyOf(all.say(0, ENDED))).toBe(WHOLE);
      await runsEnded(all.redis, 1);
      expect(await bodyOf(all.say(1, ENDED))).toBe(WHOLE);
      expect(messages()).toBe(2);
      await WAYS[way]?.(1);
      for (const at of [0, 1]) {
        expect(await problemOf(all.byName(at, { id: ENDED_ID }))).toMatchObject({ code: 'run_over' });
      }
      // Both instances join the one that goes on, and the other message runs once more.
      const joined = [all.say(0), all.say(1), all.byName(0), all.byName(1)];
      for (const client of joined) await client.waitFor('run.init');
      expect(messages()).toBe(2);
      for (const at of [0, 1]) expect(await bodyOf(all.say(at, ENDED))).toBe(WHOLE);
      expect(messages()).toBe(3);
      stream?.write(Buffer.concat([...EVENTS.slice(1).map(chunk), Buffer.from(LAST_CHUNK)]));
      for (const client of [live, ...joined]) expect(await bodyOf(client)).toBe(WHOLE);
      expect(messages()).toBe(3);
    },
  );
});
