import { afterEach, describe, expect, test } from '@jest/globals';
import { dechunk } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const json = (eventType: string) => `data: ${JSON.stringify({ eventType, requestId: 'r' })}\n\n`;
const DONE = json('asgard.run.done');
const DELTA = json('delta');
const BEGUN = `retry: 1\n\n${json('asgard.run.init')}id: 7\n${json('kept')}${DELTA}${DELTA}`;

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** Sends a message to a service whose stream breaks after `begun`; `answers` are those to its resumptions. */
async function ask(begun: string, answers: readonly Buffer[], awaited = begun) {
  pair = await startRelayAndUpstream((socket) => {
    const n = pair.upstream.requests.length;
    socket.write(n === 1 ? begins(begun) : (answers[n - 2] ?? ''));
  });
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.waitFor(awaited);
  return client;
}

const begins = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);
const breaks = (n = 0) => pair.upstream.sockets[n]?.resetAndDestroy();
const outcomes = () =>
  pair.relay.logs
    .filter(({ msg }) => msg === 'stream resumption')
    .map(({ outcome, cause }) => [outcome, cause]);

describe('a resumption', () => {
  test('has not gone on with the stream before an event came', async () => {
    const client = await ask(BEGUN, [
      begins(`: hi\nretry: 2\n\n${DELTA}${DELTA}: ping\n`),
      wholeStream(DONE),
    ]);
    breaks();
    await client.waitFor(': ping');
    breaks(1);
    await client.closed;
    expect(dechunk(client.text()).body).toBe(`${BEGUN}: hi\nretry: 2\n\n: ping\n${DONE}`);
    expect(outcomes()).toEqual([
      ['ended_early', 'ECONNRESET'],
      ['resumed', undefined],
    ]);
  });

  test('has gone on with the stream when an event that goes down in parts has ended', async () => {
    const large = `data: ${'x'.repeat(70_000)}`;
    const client = await ask(BEGUN, [begins(large)]);
    breaks();
    await client.waitFor('x'.repeat(60_000));
    expect(outcomes()).toEqual([]);
    pair.upstream.sockets[1]?.write(chunk('\n\n'));
    await until(() => outcomes().length > 0);
    expect(outcomes()).toEqual([['resumed', undefined]]);
  });

  test('is followed by another one if it ends before it has repeated all that went down', async () => {
    const [a, b, c] = ['data: a\n\n', 'data: b\n\n', 'data: c\n\n'];
    const begun = `retry: 1\nid: 7\ndata: kept\n\n${a}${b}`;
    const client = await ask(begun, [wholeStream(a), wholeStream(a + b + c)]);
    breaks();
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ body: begun + c, complete: true });
    expect(outcomes()).toEqual([
      ['ended_early', 'partial_tail'],
      ['resumed', undefined],
    ]);
  });

  test('is given up if there is no room to hold what it repeats', async () => {
    const client = await ask(BEGUN, [begins(DELTA)]);
    const { held } = pair.relay;
    const room = held.maxBytes - held.bytes();
    expect(held.take(room)).toBe(true);
    breaks();
    await client.closed;
    held.release(room);
    const { body, complete } = dechunk(client.text());
    expect([body.startsWith(`${BEGUN}event: error\n`), complete]).toEqual([true, true]);
    expect(outcomes()).toEqual([['given_up', 'no_room']]);
    expect(held.bytes()).toBe(0);
  });

  test.each([
    ['LF', '\n', 'resumed'],
    ['CR, to which an LF might still belong', '\r', 'ended_early'],
  ])(
    'of a stream without runs may end after all that went down; line ends are %s',
    async (_name, lf, outcome) => {
      const [kept, a] = [`id: 7${lf}data: kept${lf}${lf}`, `data: a${lf}${lf}`];
      const client = await ask(`retry: 1${lf}${kept}${a}`, [wholeStream(a)]);
      breaks();
      await client.closed;
      const { body, complete } = dechunk(client.text());
      expect([body, complete]).toEqual([`retry: 1${lf}${kept}${a}`, true]);
      expect(outcomes()).toEqual([[outcome, undefined]]);
    },
  );

  test('that meets a new run is the last one of the bot: no message is kept for another', async () => {
    const another = json('asgard.run.init').replace('"r"', '"s"');
    const client = await ask(BEGUN, [begins(another), begins(DELTA)]);
    breaks();
    await client.closed;
    expect(outcomes()).toEqual([['new_run', undefined]]);
    await until(() => pair.relay.held.bytes() === 0);
    const next = pair.ask();
    await next.waitFor(DELTA);
    expect(pair.relay.held.bytes()).toBe(0);
  });
});

test('a stream that breaks inside a comment too large to hold is cut, not resumed', async () => {
  const begun = `${BEGUN}: ${'x'.repeat(70_000)}`;
  const client = await ask(begun, [wholeStream(DONE)], 'x'.repeat(60_000));
  breaks();
  await client.closed;
  expect(dechunk(client.text())).toMatchObject({ body: begun, complete: false });
  expect(pair.upstream.requests).toHaveLength(1);
});
