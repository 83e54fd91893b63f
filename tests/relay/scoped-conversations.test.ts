import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { jsonAnswer, suspend } from '../harness/clients/suspend.ts';
import { OTHER_USER } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const UPSTREAM_ID = /^[0-9a-f]{64}$/;
const PATH = '/ns/acme/bot-provider/helper/message/sse';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

const idIn = ({ body }: RawRequest) =>
  (JSON.parse(String(body)) as { customChannelId: string }).customChannelId;

/** Starts a service whose answers are made from the id that it knows; returns the ids of its requests. */
async function start(answer: (socket: Socket, id: string) => void, environment: Record<string, string> = {}) {
  const ids: string[] = [];
  pair = await startRelayAndUpstream((socket, request) => {
    const inQuery = new URL(request.requestLine.split(' ')[1] ?? '', 'http://a').searchParams;
    const id = inQuery.get('custom_channel_id') ?? idIn(request);
    ids.push(id);
    answer(socket, id);
  }, environment);
  return ids;
}

const send = (body: string, cookie = pair.cookie, path = PATH) =>
  call(pair.relay.port, path, {
    method: 'POST',
    body,
    headers: { Cookie: cookie, 'Content-Type': 'application/json' },
  });
const message = (id: string) => JSON.stringify({ customChannelId: id, text: 'hi' });

describe('with CHANNELS=scoped, the bot service', () => {
  test('gets an id of the user instead of the id of the page; every other byte stays', async () => {
    await start((socket, id) => void socket.write(wholeStream(`data: "${id}"\n\n`)));
    const [before, after] = ['{ "n":1e400,\t"customChannelId" : ', ' , "text":"\\u0061c1" }\n'];
    const answer = await send(`${before}"\\u0063\\u00311"${after}`);
    expect(answer.body).toBe('data: "c11"\n\n');
    const [request] = pair.upstream.requests;
    const upstream = String(request?.body).slice(before.length, -after.length);
    expect(JSON.parse(upstream)).toMatch(UPSTREAM_ID);
    expect(String(request?.body)).toBe(before + upstream + after);
    expect(request?.all('content-length')).toEqual([String(request?.body.length)]);
  });

  test('gets the same id for a message and its suspend, and another one for each user', async () => {
    const ids = await start((socket) => void socket.write(jsonAnswer('200 OK', {})));
    const other = await pair.relay.signIn(OTHER_USER);
    await send(message('c1'));
    await send(message('c1'), pair.cookie, `/generic${PATH}`);
    await suspend(pair);
    await send(message('c1'), other);
    await send(message('c2'));
    const [first, second, suspended, others, another] = ids;
    expect([second, suspended]).toEqual([first, first]);
    expect(new Set([first, others, another]).size).toBe(3);
  });

  test('gets a message without an id as it came', async () => {
    await start((socket) => void socket.write(wholeStream('data: 1\n\n')));
    const body = '{"text":"hi","payload":{"customChannelId":"x"}}';
    await send(body);
    expect(String(pair.upstream.requests[0]?.body)).toBe(body);
  });

  test.each([
    ['[{"customChannelId":"c1"}]', ''],
    ['"c1"', ''],
    ['{"customChannelId":"c1","custom_channel_id":"c2"}', ''],
    ['{"customChannelId":7}', ''],
    [message('c1'), '?custom_channel_id=c2'],
    [message('c1'), '?customChannelId=c1'],
    ['{}', '?custom_channel_id=c1'],
  ])('does not get %s with the query %j', async (body, query) => {
    const ids = await start((socket) => void socket.destroy());
    expectProblem(await send(body, pair.cookie, PATH + query), 400, 'invalid_conversation');
    expect(ids).toEqual([]);
  });
});

describe('with CHANNELS=scoped, the page gets its own id', () => {
  const quoted = JSON.stringify('my "one"');

  test('in the events of a stream, wherever it is divided', async () => {
    const text = (id: string) => `data: {"customChannelId":${id},"text":"about x"}\n\ndata: ${id}\n\n`;
    await start((socket, id) => {
      socket.setNoDelay();
      socket.write(STREAM_HEAD);
      for (const byte of text(`"${id}"`)) socket.write(chunk(byte));
      socket.write(LAST_CHUNK);
    });
    expect((await send(message('my "one"'))).body).toBe(text(quoted));
  });

  test('in an event that is too large to hold', async () => {
    const filler = 'x'.repeat(70_000);
    await start(
      (socket, id) =>
        void socket.write(wholeStream(`data: {"f":"${filler}","id":"${id}","g":"${filler}"}\n\n`)),
    );
    expect((await send(message('my "one"'))).body).toBe(
      `data: {"f":"${filler}","id":${quoted},"g":"${filler}"}\n\n`,
    );
  });

  test('in a stream that ends with a part of an event', async () => {
    await start((socket, id) => void socket.write(wholeStream(`data: "${id}"\n\ndata: "${id.slice(0, 40)}`)));
    const { body } = await send(message('c1'));
    expect(body).toMatch(/^data: "c1"\n\ndata: "[0-9a-f]{40}$/);
  });

  test('in a stream that is resumed, whose repeated events are known by what the service sent', async () => {
    const event = (name: string, id: string) =>
      `data: ${JSON.stringify({ eventType: `asgard.${name}`, requestId: 'r', customChannelId: id })}\n\n`;
    const kept = (id: string) =>
      `retry: 1\n\n${event('run.init', id)}id: 1\n${event('message.complete', id)}`;
    const tail = (id: string) => event('message.delta', id);
    const ids = await start((socket, id) => {
      if (ids.length === 1) socket.end(`${STREAM_HEAD}fff\r\n${kept(id)}${tail(id)}`);
      else socket.write(wholeStream(tail(id) + event('run.done', id)));
    });
    expect((await send(message('c1'))).body).toBe(kept('c1') + tail('c1') + event('run.done', 'c1'));
    expect(ids[1]).toBe(ids[0]);
  });

  test('in the JSON of a refusal, and of a suspend', async () => {
    await start(
      (socket, id) => void socket.write(jsonAnswer('404 Not Found', { channel: id, text: `about ${id}` })),
    );
    const refused = errorEventIn((await send(message('my "one"'))).body);
    expect(refused.upstream).toEqual({
      channel: 'my "one"',
      text: expect.stringMatching(/^about [0-9a-f]{64}$/),
    });
    const stopped = await suspend(pair, { query: `?custom_channel_id=${encodeURIComponent('my "one"')}` });
    expect(JSON.parse(stopped.body)).toMatchObject({ channel: 'my "one"' });
    expect(stopped.headers['content-length']).toBe(String(Buffer.byteLength(stopped.body)));
  });
});

test('with CHANNELS=shared, ids pass as they are, and unusable ones are refused', async () => {
  const ids = await start((socket, id) => void socket.write(wholeStream(`data: "${id}"\n\n`)), {
    CHANNELS: 'shared',
  });
  expect((await send(message('c1'))).body).toBe('data: "c1"\n\n');
  expectProblem(await send('{"customChannelId":""}'), 400, 'invalid_conversation');
  expect(ids).toEqual(['c1']);
});

test('CHANNEL_REALM makes one user of those of two ways to sign in', async () => {
  const idWith = async (environment: Record<string, string>) => {
    const ids = await start((socket) => void socket.write(plainAnswer('400 No', [])), environment);
    await send(message('c1'));
    await pair.close();
    return ids[0];
  };
  const own = await idWith({});
  expect(await idWith({})).toBe(own);
  const named = await idWith({ CHANNEL_REALM: 'staff' });
  expect(named).not.toBe(own);
  expect(await idWith({ CHANNEL_REALM: 'password' })).toBe(own);
  await start((socket) => void socket.destroy());
});
