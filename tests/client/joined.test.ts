import { afterAll, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import { Problem } from '../../src/errors.ts';
import { LOST_BY_SHUTDOWN } from '../../src/runs/run-problems.ts';
import { dataOf, readAll } from '../harness/clients/client-pair.ts';
import { begins, ends, errorEvent, problemOf, SOON, scripted } from '../harness/clients/scripted.ts';
import type { TestOptions } from '../harness/clients/test-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { type CuttingFront, memoryStore, startCuttingFront } from '../harness/faults/cutting-front.ts';
import { jsonEvent as event } from '../harness/service/raw-upstream.ts';

const closers: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closers) await close();
});

const SENT = 'POST message/sse';
const BY_NAME = 'GET message/run';

/** Sends a message to a relay with joining on, whose bot says the first event, and reads the answer. */
async function say(
  onEvent: (data: unknown, front: CuttingFront) => void,
  {
    first = event(1),
    signal,
    ...options
  }: Partial<TestOptions> & { first?: string; signal?: AbortSignal } = {},
) {
  const front = await startCuttingFront({}, options);
  closers.push(front.close);
  const read = readAll(front.client.send('hi', { signal }), ({ raw }) => onEvent(raw, front));
  const { requests } = front.upstream;
  await until(() => requests.length > 0);
  front.emit(first);
  const { events, error } = await read;
  const resumed = requests.flatMap((one) => one.all('Last-Event-ID'));
  return { said: dataOf(events), error, calls: front.calls, runs: requests.length - resumed.length };
}

describe('at a relay, a message whose connection breaks', () => {
  testSideBySide([
    [
      'goes on after each of ten breaks, shows every event once, and is sent once',
      async () => {
        const all = await say((data, { cut, emit, finish }) => {
          cut();
          if (data === 11) finish();
          else emit(event(Number(data) + 1));
        });
        const said = Array.from({ length: 11 }, (_, at) => at + 1);
        expect(all).toEqual({ said, error: undefined, calls: [SENT, ...Array(11).fill(BY_NAME)], runs: 1 });
      },
    ],
    [
      'goes on after the last id, and shows what came behind it once',
      async () => {
        const { said, calls, runs } = await say((data, { cut, emit, finish }) => {
          if (data === 1) emit(event('kept', 7), event('a'), event('b'));
          if (data === 'b' || data === 'kept') cut();
          if (data === 'b') emit(event('kept', 8), event('end'));
          if (data === 'end') finish();
        });
        expect(said).toEqual([1, 'kept', 'a', 'b', 'kept', 'end']);
        expect({ calls, runs }).toEqual({ calls: [SENT, `${BY_NAME} 7`, `${BY_NAME} 8`], runs: 1 });
      },
    ],
    [
      'is whole if its run has ended meanwhile',
      async () => {
        const { said, error, runs } = await say((data, { cut, emit, finish }) => {
          if (data !== 1) return;
          cut();
          emit(event(2), event(3));
          finish();
        });
        expect({ said, error, runs }).toEqual({ said: [1, 2, 3], error: undefined, runs: 1 });
      },
    ],
    [
      'fails with what its run has failed with',
      async () => {
        const { said, error, runs } = await say((_, { cut, upstream }) => {
          cut();
          upstream.sockets[0]?.destroy();
        });
        expect(error).toMatchObject({ code: 'upstream_stream_broken', status: 502, retryable: false });
        expect({ said, runs }).toEqual({ said: [1], runs: 1 });
      },
    ],
    [
      'is not asked for again once it is stopped',
      async () => {
        const stop = new AbortController();
        const cut = (_: unknown, front: CuttingFront) => {
          front.cut();
          setImmediate(() => stop.abort('stopped'));
        };
        const { error, calls } = await say(cut, { signal: stop.signal });
        expect({ error, calls }).toEqual({ error: 'stopped', calls: [SENT] });
      },
    ],
    [
      'ends as soon as its user has signed out, however long the next pause is',
      async () => {
        const busy = { status: 503, code: 'draining', retryable: 'new message' };
        let asked = 0;
        let signOut = () => {};
        const away: typeof fetch = async (url, init) => {
          if (!String(url).includes('/message/run')) return fetch(url, init);
          // Only then does the long pause begin.
          setImmediate(() => signOut());
          asked += 1;
          return new Response(problemOf(busy), { status: 503, headers: { 'Retry-After': '50' } });
        };
        const cut = (_: unknown, front: CuttingFront) => {
          signOut = () => void front.client.signOut();
          front.cut();
        };
        const { said, error } = await say(cut, { fetch: away });
        expect(error).toMatchObject({ code: 'session_ended', status: 401 });
        expect({ said, asked }).toEqual({ said: [1], asked: 1 });
      },
    ],
    [
      'is whole after a shutdown of the relay, if it has an id',
      async () => {
        const { said, error, calls } = await say(
          (data, { relay, emit, finish, upstream }) => {
            if (data !== 1) return;
            relay.open.endAll(new Problem('draining', 'No.'));
            void until(() => upstream.requests.length > 1).then(() => {
              emit(event(2, 8));
              finish();
            });
          },
          { first: event(1, 7) },
        );
        expect({ said, error, calls }).toEqual({
          said: [1, 2],
          error: undefined,
          calls: [SENT, `${SENT} 7`],
        });
      },
    ],
    [
      'ends with the words of the relay after its shutdown, without an id',
      async () => {
        const { said, error, calls } = await say((_, { relay }) =>
          relay.open.endAll(new Problem('draining', 'No.')),
        );
        const { code, message } = LOST_BY_SHUTDOWN;
        expect(error).toMatchObject({ code: 'answer_lost', message, retryable: false, maybeStarted: true });
        expect({ code, said, calls }).toEqual({ code: 'answer_lost', said: [1], calls: [SENT] });
      },
    ],
  ]);
});

test.each([
  ['with an id', 1],
  ['without an id', undefined],
])(
  'after a reload, an answer that the relay has lost is shown as far as it has it, and not sent again: %s',
  async (_, id) => {
    const lost = errorEvent('answer_lost', { detail: 'The relay was restarted.' });
    const { client, calls, close } = await scripted({
      ...{
        answers: [begins(':\n')],
        joined: [ends(SOON, event(1), event(2, id), lost)],
        ids: memoryStore().store,
      },
    });
    closers.push(close);
    // Never read on, as in a page that is gone.
    void readAll(botConversation(client, 'c').send('hi'));
    await until(() => calls().length === 1);
    const [answer] = botConversation(client, 'c').resume();
    if (!answer) throw new Error('there is none');
    const { events, error } = await readAll(answer);
    expect(error).toMatchObject({ code: 'answer_lost', message: 'The relay was restarted.' });
    expect({ said: dataOf(events), calls: calls() }).toEqual({ said: [1, 2], calls: ['POST', 'RUN'] });
  },
);
