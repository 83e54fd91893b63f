import { afterEach, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import type { MessageState } from '../../src/client/session/bot-client.ts';
import { type ClientPair, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { plainAnswer, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

let pair: ClientPair;
afterEach(() => pair.close());

describe('the state of a message', () => {
  test('is waiting until the headers with the request id, then streaming, and done at the end', async () => {
    let answer: (bytes: string | Buffer) => void = () => {};
    pair = await startClientPair((socket) => {
      answer = (bytes) => socket.write(bytes);
    });
    const states: [MessageState, string | undefined][] = [];
    const stream = pair.client.send('hi', { onState: (state) => states.push([state, stream.requestId]) });
    expect(stream).toMatchObject({ state: 'waiting', requestId: undefined });
    const read = readAll(stream);
    await until(() => pair.upstream.requests.length === 1);
    expect(stream).toMatchObject({ state: 'waiting', requestId: undefined });
    expect(states).toEqual([]);
    answer(STREAM_HEAD);
    await until(() => states.length > 0);
    const { requestId } = stream;
    expect(requestId).toMatch(/./);
    expect(states).toEqual([['streaming', requestId]]);
    answer(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    expect(await read).toMatchObject({ events: [{ raw: 1 }], error: undefined });
    expect(stream.state).toBe('done');
    expect(states.slice(1)).toEqual([['done', requestId]]);
    const line = await pair.relay.logLine((one) => one.requestId === requestId && 'outcome' in one);
    expect(line).toMatchObject({ outcome: 'ok' });
  });

  test('changes to streaming and to done for a message that the service refuses, whose request id is known', async () => {
    pair = await startClientPair(
      (socket) => void socket.write(plainAnswer('400 Bad', ['Content-Type: application/json'], '{}')),
    );
    const states: MessageState[] = [];
    const stream = pair.client.send('hi', { onState: (state) => states.push(state) });
    const { error } = await readAll(stream);
    expect(error).toMatchObject({ code: 'upstream_refused', status: 400, requestId: stream.requestId });
    expect(stream.requestId).toMatch(/./);
    // What has left is answered by a stream.
    expect(states).toEqual(['streaming', 'done']);
  });
});

describe('a message', () => {
  test('is sent when its answer is read, and never before', async () => {
    pair = await startClientPair((socket) => void socket.write(wholeStream('data: 1\n\n')));
    pair.client.send('nobody reads this');
    expect(await readAll(pair.client.send('this'))).toMatchObject({ error: undefined });
    expect(pair.upstream.requests.map(({ body }) => JSON.parse(String(body)).text)).toEqual(['this']);
  });

  test('is not sent a second time by a second loop over its answer, which throws', async () => {
    pair = await startClientPair((socket) => void socket.write(wholeStream('data: 1\n\ndata: 2\n\n')));
    const { client } = pair;
    const once = new Error('An answer can be read once.');
    for (const stream of [client.send('hi'), botConversation(client, 'a').history()]) {
      expect(await readAll(stream)).toMatchObject({ events: { length: 2 }, error: undefined });
      expect(await readAll(stream)).toEqual({ events: [], error: once });
    }
    const left = client.send('hi');
    for await (const _ of left) break;
    expect(await readAll(left)).toEqual({ events: [], error: once });
    expect(pair.upstream.requests).toHaveLength(3);
  });

  test('is a text in the form of the bots, or an object of the page', async () => {
    pair = await startClientPair((socket) => void socket.write(wholeStream()), { CHANNELS: 'shared' });
    for (const message of ['hi', 'again', { customChannelId: 'c', any: ['thing'] }])
      await readAll(pair.client.send(message));
    const sent = pair.upstream.requests.map(({ body }) => JSON.parse(String(body)));
    const text = {
      customChannelId: sent[0].customChannelId,
      customMessageId: expect.any(String),
      action: 'NONE',
    };
    expect(sent).toEqual([
      { ...text, text: 'hi' },
      { ...text, text: 'again' },
      { customChannelId: 'c', any: ['thing'] },
    ]);
    expect(sent[0].customMessageId).not.toBe(sent[1].customMessageId);
    expect(sent[0].customChannelId).toMatch(/.{16}/);
  });
});
