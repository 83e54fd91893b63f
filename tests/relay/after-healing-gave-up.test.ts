import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { dechunk } from '../harness/clients/raw-client.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../harness/relay/relay-and-upstream.ts';
import { STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const json = (eventType: string) => `data: ${JSON.stringify({ eventType, requestId: 'r' })}\n\n`;
const INIT = json('asgard.run.init');
const DONE = json('asgard.run.done');
const KEPT = `id: 7\n${json('kept')}`;
const BEGUN = `retry: 1\n\n${INIT}${KEPT}`;
/** A time that no other timer uses. The deadline of the execution is later, and has the same timer. */
const RESPONSE_TIMEOUT_MS = 87_654;
/** How long the last bytes of a stream may take, and how long a resumption keeps others waiting. */
const LAST_BYTES_MS = 5_000;
const FIRST_EVENT_MS = 2_000;

let pair: RelayAndUpstream;
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
});

/** How many timers of `ms` were set since the spies were there, and how many of them run on. */
function timersOf(ms: number) {
  const set = jest.mocked(setTimeout).mock;
  const cleared = new Set<unknown>(jest.mocked(clearTimeout).mock.calls.map(([timer]) => timer));
  const timers = set.calls.flatMap(([, after], n) => (after === ms ? [set.results[n]?.value] : []));
  return { set: timers.length, left: timers.filter((timer) => !cleared.has(timer)).length };
}

/** Starts a service whose streams break; `answers` are what it says to one resumption after the other. */
async function start(answers: readonly (string | Buffer)[], environment: Record<string, string>) {
  let resumptions = 0;
  pair = await startRelayAndUpstream((socket, { all }) => {
    if (all('last-event-id').length === 0) socket.end(`${STREAM_HEAD}fff\r\n${BEGUN}`);
    else socket.write(answers[Math.min(resumptions++, answers.length - 1)] ?? '');
  }, environment);
}

async function ask(message: Parameters<RelayAndUpstream['ask']>[0] = {}) {
  const client = pair.ask({ ...message, headers: ['Connection: close', ...(message.headers ?? [])] });
  await client.closed;
  return dechunk(client.text()).body;
}

const NOTHING_TO_RESUME = plainAnswer('204 No Content', []);

describe('once healing has given up,', () => {
  test('no timer of the message runs on', async () => {
    await start([NOTHING_TO_RESUME], {
      MAX_EXECUTION_MS: '98765',
      UPSTREAM_RESPONSE_TIMEOUT_MS: String(RESPONSE_TIMEOUT_MS),
    });
    // The first message is slower.
    await ask();
    // A message that is delayed by a few ms starts its deadline once more: with a clock that stands still, none is.
    jest.spyOn(performance, 'now').mockReturnValue(performance.now());
    for (const name of ['setTimeout', 'clearTimeout'] as const) jest.spyOn(globalThis, name);
    expect(await ask()).toContain('"code":"upstream_stream_broken"');
    await until(() => pair.relay.open.count() === 0);
    // The message was sent, and its resumption.
    expect(timersOf(RESPONSE_TIMEOUT_MS)).toEqual({ set: 2, left: 0 });
    for (const ms of [FIRST_EVENT_MS, LAST_BYTES_MS]) expect(timersOf(ms)).toEqual({ set: 1, left: 0 });
  });

  test("the next streams of the bot are healed, in their turns and with the user's place", async () => {
    const failed = plainAnswer('503 No', []);
    await start([...Array(5).fill(failed), NOTHING_TO_RESUME, wholeStream(DONE)], {
      MAX_STREAMS_PER_USER: '1',
    });
    for (const ends of ['upstream_stream_broken', 'upstream_stream_broken', DONE])
      expect(await ask()).toContain(ends);
    expect(pair.upstream.requests).toHaveLength(3 + 7);
  });
});
