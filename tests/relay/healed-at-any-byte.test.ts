import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { dechunk } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const json = (eventType: string) => JSON.stringify({ eventType, requestId: 'r' });
/** A run in the shape of the field: ids on kept messages only, pieces of text between them. */
const FIELD = [
  `retry: 1\ndata: ${json('asgard.run.init')}\n\n`,
  'id: 1\ndata: ?\n\n',
  'data: so\r\n\r\n',
  'data: ha\r\n\r\n',
  'data: é😀\n\n',
  'id: 2\r\ndata: so ha\r\n\r\n',
  'data: and\n\n',
  `data: ${json('asgard.run.done')}\n\n`,
];
const SHAPES = {
  field: FIELD,
  'ids on all events': FIELD.map((event, n) => `id: ${n}\n${event.replace(/^id: .*\r?\n/, '')}`),
};

/** Which stream breaks after which byte, and how it is resumed. */
interface Breaking {
  readonly shape: keyof typeof SHAPES;
  readonly how: string;
  readonly at: number;
}

const idOf = (event: string) => /^id: (.*?)\r?\n/.exec(event)?.[1];
const bytesOf = (events: readonly string[]) => Buffer.from(events.join(''));
/** With LF line ends: an LF that belongs to a CR is lost if the stream breaks between them, and nothing with it. */
const inLf = (text: string) => text.replace(/\r\n?/g, '\n');

/** What a service that has sent `at` bytes sends to one that resumes after the event `id`. */
const RESUMES: Record<string, (events: readonly string[], id: string, at: number) => readonly string[]> = {
  'goes on live': (events, _id, at) => {
    // An event is whole with the last CR of its CRLF.
    const isSent = (event: string, n: number) =>
      bytesOf(events.slice(0, n + 1)).length - (event.endsWith('\r\n') ? 1 : 0) <= at;
    return events.slice(events.filter(isSent).length);
  },
  'repeats what came after the id': (events, id) => events.slice(events.findIndex((e) => idOf(e) === id) + 1),
  'repeats the event of the id, and what came after it': (events, id) =>
    events.slice(events.findIndex((e) => idOf(e) === id)),
};

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream(
    (socket, { body, all }) => {
      const { shape, how, at } = JSON.parse(String(body)) as Breaking;
      const events = SHAPES[shape];
      const [id] = all('last-event-id');
      const again = id === undefined ? undefined : RESUMES[how]?.(events, id, at);
      if (again) socket.write(wholeStream(...again));
      // A FIN in the middle of a chunk: all bytes before it arrive.
      else
        socket.end(Buffer.concat([Buffer.from(`${STREAM_HEAD}ffff\r\n`), bytesOf(events).subarray(0, at)]));
    },
    { RATE_LIMIT: '100000' },
  );
});
afterAll(() => pair.close());

let messages = 0;
/** Expects the whole answer, or an error event and nothing invented if the stream broke before its first id. */
async function isHealed(message: Breaking): Promise<void> {
  // Each is a message of its own: the same bytes would join its run.
  const body = JSON.stringify({ ...message, n: ++messages });
  const client = pair.ask({ body, headers: ['Connection: close'] });
  await client.closed;
  const events = SHAPES[message.shape];
  const { body: came, complete } = dechunk(client.text());
  const text = inLf(Buffer.from(came, 'latin1').toString());
  const first = bytesOf(events.slice(0, events.findIndex((event) => idOf(event) !== undefined) + 1)).length;
  expect(complete).toBe(true);
  if (message.at >= first) return expect(text).toBe(inLf(events.join('')));
  const [before = '', ...endings] = text.split('event: error\n');
  expect(inLf(events.join('')).slice(0, before.length)).toBe(before);
  expect(endings).toHaveLength(1);
}

const breakings = fc
  .record({
    shape: fc.constantFrom(...(Object.keys(SHAPES) as Breaking['shape'][])),
    how: fc.constantFrom(...Object.keys(RESUMES)),
    place: fc.nat({ max: 10_000 }).map((n) => n / 10_000),
  })
  .map(
    ({ place, ...one }): Breaking => ({ ...one, at: Math.floor(place * bytesOf(SHAPES[one.shape]).length) }),
  );

test('streams that break at any byte, at the same time, are whole for their clients', async () => {
  const together = fc.array(breakings, { minLength: 1, maxLength: 40, size: 'max' });
  const areHealed = (all: readonly Breaking[]) => Promise.all(all.map(isHealed)).then(() => {});
  const beforeAnId = [0, 3, 20].map((at): Breaking => ({ shape: 'field', how: 'goes on live', at }));
  await fc.assert(fc.asyncProperty(together, areHealed), { numRuns: 12, examples: [[beforeAnId]] });
});
