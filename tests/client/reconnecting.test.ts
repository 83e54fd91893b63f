import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import type { BotClient } from '../../src/client/session/bot-client.ts';
import { countSignOuts, dataOf, readAll } from '../harness/clients/client-pair.ts';
import {
  begins,
  breaks,
  checkScript,
  checkScripts,
  ends,
  errorEvent,
  ids,
  page,
  refuses,
  type Script,
  type Scripted,
  SOON,
  scripted,
  times,
} from '../harness/clients/scripted.ts';
import { jsonEvent as event } from '../harness/service/raw-upstream.ts';

const closers: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closers) await close();
});
afterEach(() => void jest.restoreAllMocks());

async function start(script: Script): Promise<Scripted> {
  const server = await scripted(script);
  closers.push(server.close);
  return server;
}

const LOST_CONNECTION = { code: 'connection_lost', status: 0 };
const destroys = (socket: { destroy(): unknown }) => void socket.destroy();
/** A stream with one more id each time. */
const counting = (last: number) => {
  let id = 0;
  return (...args: Parameters<ReturnType<typeof ends>>) =>
    (++id === last ? ends : breaks)(SOON, ids(id))(...args);
};

describe('a message with ids whose connection breaks', () => {
  checkScripts([
    {
      title: 'is resumed after its last id, in any script',
      answers: [breaks(SOON, `id: né 🦊\n${event(1)}`, event(2), 'data: {"half'), ends(event(2), event(3))],
      said: [1, 2, 3],
      calls: ['POST', 'RUN né 🦊', 'POST né 🦊'],
      states: ['streaming', 'waiting', 'streaming', 'done'],
    },
    {
      title: 'is resumed after each temporary failure: a page, no answer, a broken resumption, silence',
      answers: [
        ...[breaks(SOON, ids(1)), page(502), destroys, breaks(event('again')), begins(':\n\n')],
        ends(ids(2)),
      ],
      silenceMs: 200,
      said: [1, 'again', 2],
      calls: ['POST', 'RUN 1', ...times(5, 'POST 1')],
    },
    ...[
      [502, 'upstream_unreachable'] as const,
      [504, 'upstream_timeout'] as const,
      [429, 'rate_limited'] as const,
    ].map(([status, code]) => ({
      title: `is resumed after a refusal of its resumption, which is no run: ${status} ${code}`,
      answers: [breaks(SOON, ids(1)), refuses(status, code, { retryable: false }), ends(ids(2))],
      said: [1, 2],
      calls: ['POST', 'RUN 1', 'POST 1', 'POST 1'],
    })),
    {
      title: 'is resumed as long as new ids arrive',
      answers: [counting(9)],
      said: [1, 2, 3, 4, 5, 6, 7, 8, 9],
      calls: ['POST', 'RUN 1', ...[1, 2, 3, 4, 5, 6, 7, 8].map((id) => `POST ${id}`)],
    },
    {
      title: 'fails after five resumptions without a new id',
      answers: [breaks(SOON, ids(1)), breaks('data: {"half')],
      said: [1],
      error: LOST_CONNECTION,
      calls: ['POST', 'RUN 1', ...times(5, 'POST 1')],
    },
    {
      title: 'fails if the service starts at the beginning each time',
      answers: [breaks(SOON, ids(1, 2))],
      error: LOST_CONNECTION,
      calls: ['POST', 'RUN 2', ...times(5, 'POST 2')],
    },
    {
      title: 'fails at last, even if it has new ids for ever',
      answers: [counting(0)],
      error: LOST_CONNECTION,
      calls: ['POST', 'RUN 1', ...Array.from({ length: 50 }, (_, at) => `POST ${at + 1}`)],
    },
    {
      title: 'fails after an event with an empty id',
      answers: [breaks(SOON, ids(1), `id\n${event(2)}`)],
      said: [1, 2],
      error: LOST_CONNECTION,
      calls: ['POST', 'RUN'],
    },
    {
      title: 'fails at the deadline of its resumption',
      answers: [breaks(SOON, ids(1)), refuses(504, 'deadline_exceeded', { maybeStarted: true })],
      said: [1],
      error: { code: 'deadline_exceeded', status: 504, maybeStarted: true },
      calls: ['POST', 'RUN 1', 'POST 1'],
    },
    {
      title: 'is not called unsent where a load balancer answers its resumptions',
      answers: [breaks(SOON, ids(1)), page(503)],
      said: [1],
      error: { code: 'unreachable', status: 503, retryable: undefined },
      calls: ['POST', 'RUN 1', ...times(5, 'POST 1')],
    },
  ]);
});

describe('a message without ids whose connection breaks', () => {
  const once = { answers: [breaks(event(1))], said: [1], calls: ['POST', 'RUN'] };
  const busy = [
    destroys,
    refuses(503, 'draining', { retryable: 'new message' }),
    page(502),
    page(503),
    breaks(':\n'),
  ];
  checkScripts([
    {
      ...{ title: 'is asked for by its name, also when the relay or a proxy cannot answer at first' },
      ...{ answers: [breaks(event(1))], joined: [...busy, ends(event(1), event(2))] },
      ...{ said: [1, 2], calls: ['POST', ...times(6, 'RUN')] },
    },
    { ...once, title: 'fails where there is no such run', error: LOST_CONNECTION },
    ...[404, 501, 200].map((status) => ({
      ...{ ...once, title: `fails where a page with ${status} answers for its name`, joined: [page(status)] },
      error: LOST_CONNECTION,
    })),
    {
      ...{ ...once, title: 'ends with the refusal of its session' },
      ...{ joined: [refuses(401, 'unauthenticated', { retryable: false })] },
      error: { code: 'unauthenticated', status: 401 },
    },
    {
      ...{ ...once, title: 'ends with what it has failed with before its stream began' },
      ...{
        answers: [destroys],
        joined: [refuses(502, 'upstream_bad_response', { retryable: false })],
        said: [],
      },
      error: { code: 'upstream_bad_response', status: 502 },
    },
    ...(
      [
        ['is that of another message', event('other') + event(2)],
        ['is another one from its second event on', event(1) + event('other') + event(3)],
        ['has less than was read before', ''],
      ] as const
    ).map(([what, joined]) => ({
      ...{ ...once, title: `fails if what has its name ${what}`, joined: [ends(joined)] },
      ...{ answers: [breaks(event(1), event(2))], said: [1, 2], error: LOST_CONNECTION },
    })),
  ]);
});

describe('a message that ends with an error of the relay', () => {
  const busy = { status: 429, code: 'upstream_rate_limited', retryable: 'new message', retryAfter: 7 };
  checkScripts([
    ...(
      [
        ['that does not say whether another try makes sense', 'upstream_stream_broken', {}],
        ['that says that none does', 'upstream_stream_broken', { retryable: false }],
        ['at the deadline', 'deadline_exceeded', { status: 504, retryable: false }],
      ] as const
    ).map(([what, code, fields]) => ({
      ...{
        title: `is not resumed: an event ${what}`,
        answers: [ends(SOON, ids(1), errorEvent(code, fields))],
      },
      ...{
        said: [1],
        error: { message: 'No.', status: 502, code, retryable: false, ...fields },
        calls: ['POST'],
      },
    })),
    {
      title: 'says in how many seconds to try again',
      ...{ answers: [ends(errorEvent(busy.code, busy))], error: busy, calls: ['POST'] },
    },
    {
      ...{ title: 'says whether another try makes sense', answers: [refuses(429, 'rate_limited', busy)] },
      ...{ error: { status: 429, retryable: 'new message' }, calls: ['POST'] },
    },
  ]);
});

describe('the history of a conversation whose connection breaks', () => {
  const gone = refuses(404, 'x', { type: undefined });
  checkScripts(
    [
      {
        title: 'is resumed after its last id, also after a refusal for a while',
        answers: [breaks(SOON, event(1, 7), event('delta')), page(503), ends(event(2, 8))],
        ...{ said: [1, 'delta', 2], calls: ['GET', 'GET 7', 'GET 7'] },
      },
      {
        title: 'ends when the conversation is gone meanwhile',
        ...{ answers: [breaks(SOON, event(1, 7)), gone], said: [1], calls: ['GET', 'GET 7'] },
      },
      {
        title: 'fails after five resumptions without a new id',
        ...{ answers: [breaks(SOON, event(1, 7)), breaks(':\n')], said: [1], error: LOST_CONNECTION },
        calls: ['GET', ...times(5, 'GET 7')],
      },
    ],
    true,
  );

  test('is resumed as often as a new one after it has lasted for two minutes', async () => {
    const now = performance.now.bind(performance);
    let later = 0;
    jest.spyOn(performance, 'now').mockImplementation(() => now() + later);
    const cut = breaks(':\n');
    const lasting: typeof cut = (...args) => {
      later += 121_000;
      cut(...args);
    };
    const answers = [breaks(SOON, event(1, 7)), cut, cut, cut, cut, lasting, cut, cut, ends(event(2))];
    await checkScript({ title: '', answers, said: [1, 2], calls: ['GET', ...times(8, 'GET 7')] }, true);
  });

  test('ends with the reason of its signal during a pause', async () => {
    const { client, calls } = await start({ answers: [breaks('retry: 50000\n\n', event(1, 7))] });
    const abort = new AbortController();
    const history = botConversation(client, 'c').history(abort);
    const reason = new Error('the page was left');
    const { error } = await readAll(history, () => setTimeout(() => abort.abort(reason), 100));
    expect({ error, calls: calls() }).toEqual({ error: reason, calls: ['GET'] });
  });
});

test('a message is asked for by its conversation and its id', async () => {
  const { client, requests } = await start({ answers: [breaks(event(1))], joined: [ends(event(1))] });
  await readAll(client.send('hi'));
  const [sent, asked] = requests();
  const { customChannelId, customMessageId } = JSON.parse(`${sent?.body}`);
  const query = new URLSearchParams(/\?(\S+) HTTP/.exec(asked?.requestLine ?? '')?.[1]);
  expect(Object.fromEntries(query)).toEqual({
    custom_channel_id: customChannelId,
    custom_message_id: customMessageId,
  });
  expect(asked?.body).toHaveLength(0);
});

test('a resumption has the first body, even if the caller has changed the object, and its own request id', async () => {
  const second = (socket: { end(text: string): unknown }) =>
    void socket.end(
      `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: second\r\n\r\n${event(2)}`,
    );
  const { client, requests } = await start({ answers: [breaks(SOON, ids(1)), second] });
  const message = { text: 'hi' };
  const stream = client.send(message);
  const { events } = await readAll(stream, () => {
    message.text = 'changed';
  });
  expect(dataOf(events)).toEqual([1, 2]);
  expect(requests().map(({ body }) => `${body}`)).toEqual(['{"text":"hi"}', '{"text":"hi"}']);
  expect(stream.requestId).toBe('second');
});

test('a stream is resumed after the time of retry, or after a second', async () => {
  const begun = { early: 'retry: 1\n\n', usual: '', late: 'retry: 2500\n\n' };
  const resumed: string[] = [];
  const { client } = await start({
    answers: [
      (socket, request) => {
        const { text } = JSON.parse(`${request.body}`) as { text: keyof typeof begun };
        const isFirst = request.all('Last-Event-ID').length === 0;
        if (!isFirst) resumed.push(text);
        (isFirst ? breaks(begun[text], ids(1)) : ends(ids(2)))(socket, request);
      },
    ],
  });
  const reads = (['late', 'usual', 'early'] as const).map((text) => readAll(client.send({ text })));
  for (const { error } of await Promise.all(reads)) expect(error).toBeUndefined();
  expect(resumed).toEqual(['early', 'usual', 'late']);
});

describe('a stream is not resumed', () => {
  const asks = {
    message: (client: BotClient) => client.send('hi'),
    history: (client: BotClient) => botConversation(client, 'c').history(),
  };
  test.each(['message', 'history'] as const)(
    'when another user has signed in meanwhile: a %s',
    async (what) => {
      const { client, calls } = await start({ answers: [breaks(SOON, ids(1)), ends(ids(2))] });
      await client.signIn('ada', 'x');
      const signOuts = countSignOuts(client);
      const { events, error } = await readAll(asks[what](client), () => client.signIn('bob', 'x'));
      expect(dataOf(events)).toEqual([1]);
      expect(error).toMatchObject({ code: 'session_ended', status: 401 });
      expect([calls().length, signOuts()]).toEqual([1, 0]);
    },
  );

  test('when the relay says that the session has ended, and the page is told', async () => {
    const { client, calls } = await start({
      answers: [breaks(SOON, ids(1)), refuses(401, 'unauthenticated')],
    });
    await client.signIn('ada', 'x');
    const signOuts = countSignOuts(client);
    expect((await readAll(client.send('hi'))).error).toMatchObject({ code: 'unauthenticated', status: 401 });
    expect([calls(), signOuts()]).toEqual([['POST', 'RUN 1', 'POST 1'], 1]);
  });

  test.each(['abort', 'break'])('when its reader has stopped by %s', async (way) => {
    const { client, requests } = await start({
      answers: [begins(SOON, ids(1)), breaks('retry: 300\n\n', ids(1)), ends(ids(2))],
    });
    const abort = new AbortController();
    try {
      for await (const _ of client.send({ text: 'left' }, { signal: abort.signal })) {
        if (way === 'break') break;
        abort.abort();
      }
    } catch {
      expect(way).toBe('abort');
    }
    // When another stream with a longer pause is resumed, the first one would have been resumed.
    await readAll(client.send({ text: 'another' }));
    const texts = requests().map(({ body }) => (JSON.parse(`${body}`) as { text: string }).text);
    expect(texts).toEqual(['left', 'another', 'another']);
  });
});
