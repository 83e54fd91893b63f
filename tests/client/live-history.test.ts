import type { Socket } from 'node:net';
import { afterAll, describe, expect, jest, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import { readAll } from '../harness/clients/client-pair.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type BreakingFront, startBreakingFront } from '../harness/faults/breaking-front.ts';
import { OTHER_USER } from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';
import { chunk, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const closers: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function start(...args: Parameters<typeof startBreakingFront>): Promise<BreakingFront> {
  const front = await startBreakingFront(...args);
  closers.push(front.close);
  return front;
}

const begun = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);
const cutAfter = (text: string) => (socket: Socket) => void socket.end(begun(text));
const whole = (text: string) => (socket: Socket) => void socket.write(wholeStream(text));
const missing = (socket: Socket) =>
  void socket.write(plainAnswer('404 Not Found', ['Content-Type: application/json'], '{"error":{}}'));
const lastEventIds = ({ asked }: BreakingFront) => asked.map(({ lastEventId }) => lastEventId);
const dataOf = (events: readonly { raw: unknown }[]) => events.map(({ raw }) => raw);

describe('the history of a conversation', () => {
  testSideBySide([
    [
      'is resumed after the last id when it is cut or refused for a while, without a body',
      async () => {
        const front = await start([
          cutAfter('retry: 1\nid: 7\ndata: 1\n\ndata: "delta"\n\n'),
          (socket) => void socket.write(plainAnswer('503 Draining', ['Content-Type: text/html'], '<p>')),
          whole('id: 8\ndata: 2\n\n'),
        ]);
        const { events, error } = await readAll(botConversation(front.client, 'c').history());
        expect(error).toBeUndefined();
        expect(dataOf(events)).toEqual([1, 'delta', 2]);
        expect(lastEventIds(front)).toEqual([undefined, '7', '7']);
        expect(front.asked.map(({ body }) => body)).toEqual(['', '', '']);
      },
    ],
    [
      'ends when the conversation is gone meanwhile',
      async () => {
        const front = await start([cutAfter('retry: 1\nid: 7\ndata: 1\n\n'), missing]);
        const { events, error } = await readAll(botConversation(front.client, 'c').history());
        expect([dataOf(events), error]).toEqual([[1], undefined]);
      },
    ],
    [
      'fails after five resumptions without a new id',
      async () => {
        const front = await start([cutAfter('retry: 1\nid: 7\ndata: 1\n\n'), cutAfter(':\n')]);
        const { error } = await readAll(botConversation(front.client, 'c').history());
        expect(error).toMatchObject({ name: 'RelayError', code: 'connection_lost' });
        expect(lastEventIds(front)).toEqual([undefined, ...Array(5).fill('7')]);
      },
    ],
    [
      'is not resumed in the session of another user',
      async () => {
        const front = await start([cutAfter('retry: 1\nid: 7\ndata: 1\n\n'), whole('data: 2\n\n')]);
        const { client } = front;
        const { events, error } = await readAll(botConversation(client, 'c').history(), () =>
          client.signIn(OTHER_USER.name, OTHER_USER.password),
        );
        expect(dataOf(events)).toEqual([1]);
        expect(error).toMatchObject({ code: 'session_ended' });
        expect(front.asked).toHaveLength(1);
      },
    ],
    [
      'ends with the reason of its signal, also during a pause',
      async () => {
        const front = await start([cutAfter('retry: 50000\nid: 7\ndata: 1\n\n')]);
        const abort = new AbortController();
        const reason = new Error('the page was left');
        const { error } = await readAll(botConversation(front.client, 'c').history(abort), () =>
          setTimeout(() => abort.abort(reason), 300),
        );
        expect(error).toBe(reason);
        expect(front.asked).toHaveLength(1);
      },
    ],
  ]);
});

test('the history of a conversation that has lasted for two minutes is resumed as often as a new one', async () => {
  const now = performance.now.bind(performance);
  let later = 0;
  const clock = jest.spyOn(performance, 'now').mockImplementation(() => now() + later);
  try {
    const cut = cutAfter(':\n');
    const lasting = (socket: Socket) => {
      later += 121_000;
      cut(socket);
    };
    const front = await start([
      cutAfter('retry: 1\nid: 7\ndata: 1\n\n'),
      ...[cut, cut, cut, cut, lasting],
      ...[cut, cut, whole('data: 2\n\n')],
    ]);
    const { events, error } = await readAll(botConversation(front.client, 'c').history());
    expect([dataOf(events), error]).toEqual([[1, 2], undefined]);
  } finally {
    clock.mockRestore();
  }
});
