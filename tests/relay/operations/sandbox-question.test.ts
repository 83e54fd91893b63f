import type { Socket } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { ask, operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { questionStage } from '../../harness/clients/question-stage.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { until } from '../../harness/clock/until.ts';
import { OTHER_USER, startRelay } from '../../harness/relay/relay.ts';
import { launched, SANDBOX_REQUEST } from '../../harness/service/launched-sandboxes.ts';
import type { RawRequest } from '../../harness/service/raw-upstream.ts';
import { plainAnswer } from '../../harness/service/raw-upstream.ts';

const LIST = operationAt('GET sandbox/:sandbox/fs/list');
const WATCH = operationAt('GET sandbox/:sandbox/fs/watch');
const STAT = operationAt('GET sandbox/:sandbox/fs/stat');

const stage = questionStage();
const { inChannel, use, questions, others } = stage;
/** Lets the requests that have been sent get as far as they can without an answer. */
const allWait = async () => {
  for (let n = 0; n < 5; n += 1)
    await call(stage.pair.relay.port, '/auth/session', { headers: { Cookie: stage.pair.cookie } });
};
const idIn = ({ requestLine }: RawRequest) =>
  new URL(requestLine.split(' ')[1] ?? '', 'http://a').searchParams.get('custom_channel_id');

/** Leaves the next questions without an answer. */
function hold(): Socket[] {
  const asked: Socket[] = [];
  stage.tell = (socket) => void asked.push(socket);
  return asked;
}
/** Asks for a list over a connection of its own. */
function raw(id: string) {
  const { path } = operationRequest(LIST, { channel: `c${stage.channel}` });
  const head = [`GET ${path} HTTP/1.1`, 'Host: a', `Cookie: ${stage.pair.cookie}`];
  return rawClient(
    stage.pair.relay.port,
    [...head, `X-Request-Id: ${SANDBOX_REQUEST}${id}`, '', ''].join('\r\n'),
  );
}

describe('the question which sandboxes a conversation has launched', () => {
  test('is for the metadata, in the shape of the request and with its key and id', async () => {
    const { headers } = operationRequest(LIST);
    await inChannel(LIST, { shape: '/generic/ns', headers: { ...headers, traceparent: '00-1-2-01' } });
    const [question] = questions();
    expect(question?.requestLine).toMatch(
      /^GET \/generic\/ns\/acme\/bot-provider\/helper\/channel\/metadata\?custom_channel_id=[0-9a-f]{64} /,
    );
    expect(question?.all('x-api-key')).toHaveLength(1);
    expect(question?.all('x-request-id')).toEqual([headers['X-Request-Id']]);
    expect(question?.all('traceparent')).toEqual(['00-1-2-01']);
    expect(question?.all('cookie')).toEqual([]);
  });

  test('is asked once a minute for all sandboxes of a conversation, by both shapes', async () => {
    for (const name of ['one', 'two'])
      for (const shape of ['/ns', '/generic/ns'] as const)
        expect((await use(name, { shape }, STAT)).status).toBe(200);
    expect(questions()).toHaveLength(1);
    // It may have been launched since.
    stage.tell = (socket) => void socket.end(launched('one', 'three'));
    for (const name of ['three', 'one']) expect((await use(name)).status).toBe(200);
    expect(questions()).toHaveLength(2);
    // The last answer counts.
    expectProblem(await use('two'), 403, 'not_your_conversation');
  });

  test('is asked once for all requests that come meanwhile', async () => {
    const asked = hold();
    const answers = ['one', 'one', 'two', 'two', 'one'].map((name) => use(name));
    await until(() => asked.length === 1);
    // It is answered for nobody else.
    const other = use('one', { channel: `other${stage.channel}` });
    await until(() => asked.length === 2);
    for (const socket of asked) socket.end(launched('one', 'two'));
    const statuses = (await Promise.all([...answers, other])).map(({ status }) => status);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 200]);
    expect(questions()).toHaveLength(2);
  });

  test('is asked by the next one if its client leaves, and the client of a waiting one may leave, too', async () => {
    const asked = hold();
    const leaving = raw('leaves-first');
    await until(() => asked.length === 1);
    const waiting = raw('leaves-next');
    const staying = use('one');
    await call(stage.pair.relay.port, '/auth/session', { headers: { Cookie: stage.pair.cookie } });
    waiting.socket.destroy();
    await stage.pair.relay.logLine(
      ({ requestId, status }) => requestId === `${SANDBOX_REQUEST}leaves-next` && status === 499,
    );
    expect(asked).toHaveLength(1);
    leaving.socket.destroy();
    await until(() => asked.length === 2);
    asked[1]?.end(launched('one'));
    expect((await staying).status).toBe(200);
  });

  test('is asked again by one of those who wait if its client leaves', async () => {
    const asked = hold();
    const leaving = raw('leaves');
    await until(() => asked.length === 1);
    const staying = ['one', 'two', 'one', 'one'].map((name) => use(name));
    await allWait();
    leaving.socket.destroy();
    await until(() => asked.length === 2);
    await allWait();
    asked[1]?.end(launched('one', 'two'));
    for (const { status } of await Promise.all(staying)) expect(status).toBe(200);
    expect(asked).toHaveLength(2);
  });

  test('fails for all who wait for it', async () => {
    const asked = hold();
    const answers = ['one', 'one', 'two'].map((name) => use(name));
    await until(() => asked.length === 1);
    await allWait();
    asked[0]?.end(plainAnswer('500 Oh', []));
    for (const answer of await Promise.all(answers)) expectProblem(answer, 502, 'upstream_bad_response');
    expect(asked).toHaveLength(1);
  });

  test('is asked once more for those who came meanwhile and were not named', async () => {
    const asked = hold();
    const first = use('old');
    await until(() => asked.length === 1);
    const others = ['new', 'new', 'none', 'one'].map((name) => use(name));
    await allWait();
    asked[0]?.end(launched('one'));
    expectProblem(await first, 403, 'not_your_conversation');
    await until(() => asked.length === 2);
    await allWait();
    asked[1]?.end(launched('one', 'new'));
    const statuses = (await Promise.all(others)).map(({ status }) => status);
    expect(statuses).toEqual([200, 200, 403, 200]);
    expect(asked).toHaveLength(2);
  });

  test.each(['DELETE channel', 'POST channel/clear'])(
    'is asked anew after %s, also one that was under way',
    async (line) => {
      const relay = await startRelay(stage.pair.upstream.url, { OPERATIONS: 'chat,sandbox' });
      const at = { ...stage.pair, relay, cookie: await relay.signIn() };
      const path = LIST.path.replace(':sandbox', 'one');
      const useOne = () => ask(at, { ...LIST, path }, { channel: 'c' });
      const remove = async () =>
        expect((await ask(at, operationAt(line), { channel: 'c' })).status).toBe(200);
      expect((await useOne()).status).toBe(200);
      await remove();
      const asked = hold();
      const waiting = useOne();
      await until(() => asked.length === 1);
      await remove();
      asked[0]?.end(launched('one'));
      expect((await waiting).status).toBe(200);
      stage.tell = (socket) => void socket.end(launched());
      expectProblem(await useOne(), 403, 'not_your_conversation');
      expect(questions()).toHaveLength(3);
      await relay.close();
    },
  );

  test('is asked anew for another user, another conversation and another bot', async () => {
    await use('one');
    stage.tell = (socket) => void socket.end(launched());
    const Cookie = await stage.pair.relay.signIn(OTHER_USER);
    for (const changes of [{ headers: { Cookie } }, { bot: 'other' }, { channel: 'x' }])
      expectProblem(await use('one', changes), 403, 'not_your_conversation');
    expect(questions()).toHaveLength(4);
    expect(new Set(questions().map(idIn)).size).toBe(3);
  });

  test.each([LIST, WATCH])('ends when the client of $path leaves, or its session', async (row) => {
    const asked = hold();
    const { path, headers } = operationRequest(row, { channel: `c${stage.channel}` });
    const cookie = await stage.pair.relay.signIn();
    const lines = Object.entries({ ...headers, Host: 'a', Cookie: cookie }).map((line) => line.join(': '));
    const rawOf = () =>
      rawClient(stage.pair.relay.port, [`GET ${path} HTTP/1.1`, ...lines, '', ''].join('\r\n'));
    const leaving = rawOf();
    await until(() => asked.length === 1);
    leaving.socket.destroy();
    await until(() => asked[0]?.destroyed === true);
    const staying = rawOf();
    await until(() => asked.length === 2);
    await call(stage.pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
    await staying.waitFor('"code":"session_ended"');
    await until(() => asked[1]?.destroyed === true);
    expect(others()).toEqual([]);
    staying.socket.destroy();
  });
});
