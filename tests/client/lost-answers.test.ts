import type { Socket } from 'node:net';
import { afterAll, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import { createBotClient, type MessageState } from '../../src/client/session/bot-client.ts';
import { Problem } from '../../src/errors.ts';
import { LOST_BY_SHUTDOWN } from '../../src/runs/run-problems.ts';
import { readAll } from '../harness/clients/client-pair.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore, startCuttingFront } from '../harness/faults/cutting-front.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  jsonEvent as event,
  type RawRequest,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const closers: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const WORDS = 'The relay was restarted; the answer is not complete.';
const problemOf = (fields: object) =>
  JSON.stringify({ type: 'about:blank', status: 502, detail: WORDS, retryable: false, ...fields });
const endedWith = (code: string, fields: object = {}) =>
  `event: error\ndata: ${problemOf({ code, maybeStarted: true, ...fields })}\n\n`;
const LOST = endedWith('answer_lost');
/** Makes the pauses of a test short. */
const SOON = 'retry: 1\n\n';

type Answer = (socket: Socket) => void;
const whole =
  (...events: string[]) =>
  (socket: Socket) =>
    void socket.end(wholeStream(events.join('')));
const cutAfter =
  (...events: string[]) =>
  (socket: Socket) =>
    void socket.end(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(events.join(''))]));
const refusal = (status: string, fields: object) => (socket: Socket) =>
  void socket.end(plainAnswer(status, [], problemOf({ code: 'busy', ...fields })));

const asked = ({ requestLine, all }: RawRequest) =>
  [/^\w+/.exec(requestLine)?.[0], /message\/(run|sse)/.exec(requestLine)?.[0], ...all('Last-Event-ID')].join(
    ' ',
  );
const SENT = 'POST message/sse';
const BY_NAME = 'GET message/run';

/** A server in the place of the relay, which gives each request the next of `answers`, and later ones the last. */
async function withAnswers(...answers: Answer[]) {
  const server = await startRawUpstream((socket) => {
    answers[Math.min(server.requests.length, answers.length) - 1]?.(socket);
  });
  closers.push(server.close);
  const { store } = memoryStore();
  const client = createBotClient({ baseUrl: server.url, namespace: 'a', botProviderName: 'b', store });
  return { client, calls: () => server.requests.map(asked), server };
}

/** Sends a message, and reads its answer. */
async function said(...answers: Answer[]) {
  const { client, calls, server } = await withAnswers(...answers);
  const states: MessageState[] = [];
  const { events, error } = await readAll(client.send('hi', { onState: (state) => states.push(state) }));
  const bodies = server.requests
    .filter(({ requestLine }) => requestLine.startsWith('POST'))
    .map(({ body }) => `${body}`);
  return { said: events.map(({ raw }) => raw), error, calls: calls(), states, bodies: new Set(bodies).size };
}

describe('an answer that the relay has lost', () => {
  testSideBySide([
    ...['answer_lost', 'draining'].map(
      (code) =>
        [
          `goes on after its last id, with the same message: ${code}`,
          async () => {
            const ending = endedWith(code, { status: code === 'draining' ? 503 : 502 });
            const { states, ...rest } = await said(
              whole(SOON, event(1, 1), ending),
              whole(event(2, 2), event(3)),
            );
            expect(rest).toEqual({
              said: [1, 2, 3],
              error: undefined,
              calls: [SENT, `${SENT} 1`],
              bodies: 1,
            });
            expect(states).toEqual(['streaming', 'waiting', 'streaming', 'done']);
          },
        ] as const,
    ),
    [
      'goes on from what the relay still has by its name',
      async () => {
        const { error, ...rest } = await said(
          cutAfter(SOON, event(1)),
          whole(event(1), event(2, 7), LOST),
          whole(event(3)),
        );
        expect(error).toBeUndefined();
        expect(rest).toMatchObject({ said: [1, 2, 3], calls: [SENT, BY_NAME, `${SENT} 7`], bodies: 1 });
      },
    ],
    [
      'goes on after its last id even if the relay has less than was read',
      async () => {
        const { error, ...rest } = await said(
          cutAfter(SOON, event(1, 1), event(2)),
          whole(LOST),
          whole(event(2), event(3)),
        );
        expect(error).toBeUndefined();
        expect(rest).toMatchObject({ said: [1, 2, 3], calls: [SENT, `${BY_NAME} 1`, `${SENT} 1`] });
      },
    ],
    [
      'goes on although it is lost again, as long as another instance waits for the lost one',
      async () => {
        const { error, ...rest } = await said(
          whole(SOON, event(1, 1), event(2), LOST),
          whole(event(2), event(3), LOST),
          refusal('503 Busy', { status: 503, retryable: 'new message' }),
          whole(event(2), event(3), event(4)),
        );
        expect(error).toBeUndefined();
        expect(rest).toMatchObject({ said: [1, 2, 3, 4], calls: [SENT, ...Array(3).fill(`${SENT} 1`)] });
      },
    ],
    [
      'ends as lost without an id, and is sent once',
      async () => {
        const { error, ...rest } = await said(whole(SOON, event(1), LOST));
        expect(error).toMatchObject({
          code: 'answer_lost',
          message: WORDS,
          retryable: false,
          maybeStarted: true,
        });
        expect(rest).toMatchObject({ said: [1], calls: [SENT] });
      },
    ],
    [
      'ends as lost, and is sent once, if by its name it has no id either',
      async () => {
        const { error, ...rest } = await said(cutAfter(SOON, event(1)), whole(event(1), event(2), LOST));
        expect(error).toMatchObject({ code: 'answer_lost', message: WORDS });
        expect(rest).toMatchObject({ said: [1, 2], calls: [SENT, BY_NAME] });
      },
    ],
    [
      'ends as lost after five tries without a new id',
      async () => {
        const { error, ...rest } = await said(whole(SOON, event(1, 1), LOST), whole(LOST));
        expect(error).toMatchObject({ code: 'answer_lost', retryable: false });
        expect(rest).toMatchObject({ said: [1], calls: [SENT, ...Array(5).fill(`${SENT} 1`)] });
      },
    ],
    ...(
      [
        ['404 Not Found', { status: 404, code: 'upstream_refused' }],
        ['503 Busy', { status: 503, retryable: 'new message' }],
      ] as const
    ).map(
      ([status, fields]) =>
        [
          `ends as lost, not as one that has not run, if the rest is refused with ${status}`,
          async () => {
            const { error, calls } = await said(whole(SOON, event(1, 1), LOST), refusal(status, fields));
            expect(error).toMatchObject({ code: 'answer_lost', retryable: false, maybeStarted: true });
            expect(calls.slice(0, 2)).toEqual([SENT, `${SENT} 1`]);
          },
        ] as const,
    ),
    [
      'ends with the refusal of its session',
      async () => {
        const out = refusal('401 No', { status: 401, code: 'unauthenticated' });
        const { error, calls } = await said(whole(SOON, event(1, 1), LOST), out);
        expect(error).toMatchObject({ code: 'unauthenticated', status: 401 });
        expect(calls).toEqual([SENT, `${SENT} 1`]);
      },
    ],
    [
      'ends with what its run has failed with at last',
      async () => {
        const broken = endedWith('upstream_stream_broken');
        const { error, ...rest } = await said(whole(SOON, event(1, 1), LOST), whole(event(2, 2), broken));
        expect(error).toMatchObject({ code: 'upstream_stream_broken' });
        expect(rest).toMatchObject({ said: [1, 2], calls: [SENT, `${SENT} 1`] });
      },
    ],
  ]);
});

describe('what the bot service repeats after the last id', () => {
  const BEGUN = whole(SOON, event('kept', 1), event('a'), event('b'), LOST);
  testSideBySide(
    (
      [
        ['is shown once', [event('a'), event('b'), event('c')], ['c']],
        ['is shown once if it ends there', [event('a'), event('b')], []],
        ['is shown if it comes in another form', [event('a'), event('bc'), event('d')], ['a', 'bc', 'd']],
        ['need not be there', [event('c'), event('d')], ['c', 'd']],
        ['is shown if a new id comes first', [event('a'), event('kept', 2), event('b')], ['a', 'kept', 'b']],
      ] as const
    ).map(([title, events, shown]) => [
      title,
      async () => {
        const { said: all, error } = await said(BEGUN, whole(...events));
        expect({ all, error }).toEqual({ all: ['kept', 'a', 'b', ...shown], error: undefined });
      },
    ]),
  );

  test('is asked for again if a part of it is missing at the end', async () => {
    const {
      said: all,
      error,
      calls,
    } = await said(BEGUN, whole(event('a')), whole(event('a'), event('b'), event('c')));
    expect({ all, error }).toEqual({ all: ['kept', 'a', 'b', 'c'], error: undefined });
    expect(calls).toEqual([SENT, `${SENT} 1`, `${SENT} 1`]);
  });
});

describe('an answer that the relay has lost, after a reload', () => {
  /** Reads the answer at a page whose tab has kept the name of the message alone. */
  async function reloaded(...answers: Answer[]) {
    const { client, calls } = await withAnswers((socket) => void socket.write(STREAM_HEAD), ...answers);
    void readAll(botConversation(client, 'c').send('hi'));
    await until(() => calls().length === 1);
    const [answer] = botConversation(client, 'c').resume();
    if (!answer) throw new Error('there is none');
    const { events, error } = await readAll(answer);
    return { said: events.map(({ raw }) => raw), error, calls: calls() };
  }

  test.each([
    ['with an id', 1],
    ['without an id', undefined],
  ])('is shown as far as the relay has it, ends as lost, and is not sent again: %s', async (_, id) => {
    const { error, ...rest } = await reloaded(whole(SOON, event(1), event(2, id), LOST));
    expect(error).toMatchObject({ code: 'answer_lost', message: WORDS });
    expect(rest).toEqual({ said: [1, 2], calls: [SENT, BY_NAME] });
  });
});

describe('at a relay whose streams end in a shutdown, an answer', () => {
  async function shutDown(id?: number) {
    const front = await startCuttingFront();
    closers.push(front.close);
    const reading = readAll(front.client.send('hi'), ({ raw }) => {
      if (raw === 1) front.relay.open.endAll(new Problem('draining', 'No.'));
    });
    const { requests } = front.upstream;
    await until(() => requests.length > 0);
    front.emit(event(1, id));
    return { front, reading, resumed: () => requests.map((one) => one.all('Last-Event-ID')) };
  }

  test('with an id is whole', async () => {
    const { front, reading, resumed } = await shutDown(7);
    await until(() => resumed().length > 1);
    front.emit(event(2, 8));
    front.finish();
    const { events, error } = await reading;
    expect({ events: events.map(({ raw }) => raw), error }).toEqual({ events: [1, 2], error: undefined });
    expect(resumed()).toEqual([[], ['7']]);
    expect(front.calls).toEqual([SENT, `${SENT} 7`]);
  });

  test('without an id ends with the words of the relay', async () => {
    const { front, reading, resumed } = await shutDown();
    const { events, error } = await reading;
    expect(events.map(({ raw }) => raw)).toEqual([1]);
    const { code, message } = LOST_BY_SHUTDOWN;
    expect(code).toBe('answer_lost');
    expect(error).toMatchObject({ code, message, retryable: false, maybeStarted: true });
    expect(resumed()).toEqual([[]]);
    expect(front.calls).toEqual([SENT]);
  });
});
