import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { dataOf, readAll } from '../harness/clients/client-pair.ts';
import {
  breaks,
  checkScripts,
  ends,
  errorEvent,
  ids,
  refuses,
  SOON,
  times,
} from '../harness/clients/scripted.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { jsonEvent as event } from '../harness/service/raw-upstream.ts';

const WORDS = 'The relay was restarted; the answer is not complete.';
const LOST = errorEvent('answer_lost', { detail: WORDS, retryable: false, maybeStarted: true });
const AS_LOST = { code: 'answer_lost', message: WORDS, retryable: false, maybeStarted: true };

describe('an answer that the relay has lost', () => {
  const begun = ends(SOON, ids(1), LOST);
  checkScripts([
    ...[LOST, errorEvent('draining', { status: 503 })].map((lost, at) => ({
      title: `goes on after its last id: ${['lost', 'draining'][at]}`,
      answers: [ends(SOON, ids(1), lost), ends(ids(2), event(3))],
      ...{
        said: [1, 2, 3],
        calls: ['POST', 'POST 1'],
        states: ['streaming', 'waiting', 'streaming', 'done'] as const,
      },
    })),
    {
      title: 'goes on from what the relay still has by its name',
      ...{ answers: [breaks(SOON, event(1)), ends(event(3))], joined: [ends(event(1), event(2, 7), LOST)] },
      ...{ said: [1, 2, 3], calls: ['POST', 'RUN', 'POST 7'] },
    },
    {
      title: 'goes on after its last id even if the relay has less than was read',
      ...{ answers: [breaks(SOON, ids(1), event(2)), ends(event(2), event(3))], joined: [ends(LOST)] },
      ...{ said: [1, 2, 3], calls: ['POST', 'RUN 1', 'POST 1'] },
    },
    {
      title: 'goes on although it is lost again, as long as another instance waits for the lost one',
      answers: [
        ...[ends(SOON, ids(1), event(2), LOST), ends(event(2), event(3), LOST)],
        refuses(503, 'busy', { retryable: 'new message' }),
        ends(event(2), event(3), event(4)),
      ],
      ...{ said: [1, 2, 3, 4], calls: ['POST', ...times(3, 'POST 1')] },
    },
    {
      title: 'ends as lost without an id',
      ...{ answers: [ends(SOON, event(1), LOST)], said: [1], error: AS_LOST, calls: ['POST'] },
    },
    {
      title: 'ends as lost if by its name it has no id either',
      ...{ answers: [breaks(SOON, event(1))], joined: [ends(event(1), event(2), LOST)] },
      ...{ said: [1, 2], error: AS_LOST, calls: ['POST', 'RUN'] },
    },
    {
      title: 'ends as lost after five tries without a new id',
      ...{ answers: [begun, ends(LOST)], said: [1], error: AS_LOST, calls: ['POST', ...times(5, 'POST 1')] },
    },
    {
      title: 'ends as lost, not as one that has not run, if the rest is refused',
      ...{ answers: [begun, refuses(404, 'upstream_refused', { retryable: 'new message' })] },
      ...{ said: [1], error: AS_LOST, calls: ['POST', 'POST 1'] },
    },
    {
      title: 'ends as lost, not as one that has not run, if the rest cannot be had',
      ...{ answers: [begun, refuses(503, 'busy', { retryable: 'new message' })] },
      ...{ said: [1], error: AS_LOST, calls: ['POST', ...times(5, 'POST 1')] },
    },
    {
      title: 'ends with the refusal of its session',
      ...{ answers: [begun, refuses(401, 'unauthenticated')], said: [1], calls: ['POST', 'POST 1'] },
      error: { code: 'unauthenticated', status: 401 },
    },
    {
      title: 'ends with what its run has failed with at last',
      ...{ answers: [begun, ends(ids(2), errorEvent('upstream_stream_broken'))], said: [1, 2] },
      ...{ error: { code: 'upstream_stream_broken' }, calls: ['POST', 'POST 1'] },
    },
    ...(
      [
        ['in another form', [event('a'), event('bc'), event('d')], ['a', 'bc', 'd']],
        ['not at all', [event('c'), event('d')], ['c', 'd']],
        ['behind a new id', [event('a'), event('kept', 2), event('b')], ['a', 'kept', 'b']],
      ] as const
    ).map(([how, repeated, shown]) => ({
      title: `shows what the bot service repeats of it ${how}`,
      answers: [ends(SOON, event('kept', 1), event('a'), event('b'), LOST), ends(...repeated)],
      ...{ said: ['kept', 'a', 'b', ...shown], calls: ['POST', 'POST 1'] },
    })),
    {
      title: 'is asked for again if a part of what was read is missing at the end',
      answers: [
        ends(SOON, ids(1), event('a'), event('b'), LOST),
        ends(event('a')),
        ends(...'abc'.split('').map((one) => event(one))),
      ],
      ...{ said: [1, 'a', 'b', 'c'], calls: ['POST', 'POST 1', 'POST 1'] },
    },
  ]);
});

/** How a run is read: its events, of which some have ids, where each answer is cut, and how its bytes are split. */
const readings = fc.record({
  hasId: fc.array(fc.boolean(), { minLength: 1, maxLength: 12 }),
  cuts: fc.array(fc.nat(12), { maxLength: 4 }),
  pieces: fc.infiniteStream(fc.integer({ min: 1, max: 40 })),
  repeats: fc.boolean(),
});

test('an answer that is lost anywhere, and comes in any pieces, is read once and whole', async () => {
  await fc.assert(
    fc.asyncProperty(readings, async ({ hasId, cuts, pieces, repeats }) => {
      // Only what has an id before it can be resumed.
      const run = [true, ...hasId].map((has, at) => event(`event ${at}`, has ? at + 1 : undefined));
      let sent = 0;
      const body = (text: string) =>
        new ReadableStream<Uint8Array>({
          start(controller) {
            for (let rest = Buffer.from(text); rest.length > 0; ) {
              const size = pieces.next().value ?? 1;
              controller.enqueue(Uint8Array.from(rest.subarray(0, size)));
              rest = rest.subarray(size);
            }
            controller.close();
          },
        });
      const answer: typeof fetch = async (_, init) => {
        const last = Number(new Headers(init?.headers).get('Last-Event-ID'));
        const from = repeats ? last : sent;
        const cut = cuts.shift();
        sent = Math.max(sent, Math.min(run.length, from + 1 + (cut ?? run.length)));
        const text = `${SOON}${run.slice(from, sent).join('')}${cut === undefined ? '' : LOST}`;
        return new Response(body(text), { headers: { 'Content-Type': 'text/event-stream' } });
      };
      const options = { baseUrl: 'http://relay.example', namespace: 'a', botProviderName: 'b' };
      const { events, error } = await readAll(testClient({ ...options, fetch: answer }).send('hi'));
      expect({ error, said: dataOf(events) }).toEqual({
        error: undefined,
        said: run.map((_, at) => `event ${at}`),
      });
    }),
  );
});
