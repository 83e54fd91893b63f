import { expect, jest } from '@jest/globals';
import { dechunk } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

// The first case waits for those beside it.
jest.setTimeout(120_000);

const AT_ONCE = 50;

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
type Shape = keyof typeof SHAPES;
/** At every so many bytes a stream breaks here. In memory, resumed-head.test.ts breaks both shapes at every byte. */
const STEPS: Readonly<Record<Shape, number>> = { field: 1, 'ids on all events': 3 };

const idOf = (event: string) => /^id: (.*?)\r?\n/.exec(event)?.[1];
const bytesOf = (events: readonly string[]) => Buffer.from(events.join(''));

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

const start = () =>
  startRelayAndUpstream(
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

/** Which stream breaks after which byte, and how it is resumed. */
interface Breaking {
  readonly shape: Shape;
  readonly how: string;
  readonly at: number;
}

async function carried(pair: RelayAndUpstream, message: Breaking) {
  const client = pair.ask({ body: JSON.stringify(message), headers: ['Connection: close'] });
  await client.closed;
  const { body, complete } = dechunk(client.text());
  return { text: inLf(Buffer.from(body, 'latin1').toString()), complete };
}

/** With LF line ends: an LF that belongs to a CR is lost if the stream breaks between them, and nothing with it. */
const inLf = (text: string) => text.replace(/\r\n?/g, '\n');

async function isHealed(pair: RelayAndUpstream, shape: Shape, how: string): Promise<void> {
  const events = SHAPES[shape];
  const text = inLf(events.join(''));
  const first = events.findIndex((event) => idOf(event) !== undefined);
  const from = bytesOf(events.slice(0, first + 1)).length;
  const length = bytesOf(events).length - from + 1;
  const offsets = Array.from({ length }, (_, n) => from + n).filter((_, n) => n % STEPS[shape] === 0);
  while (offsets.length > 0) {
    const group = offsets.splice(0, AT_ONCE);
    const results = await Promise.all(group.map((at) => carried(pair, { shape, how, at })));
    expect(results).toEqual(group.map(() => ({ text, complete: true })));
  }
}

async function endsWithAnError(pair: RelayAndUpstream, shape: Shape): Promise<void> {
  const events = SHAPES[shape];
  const first = bytesOf(events.slice(0, events.findIndex((event) => idOf(event) !== undefined) + 1)).length;
  for (const at of [0, 3, first - 1]) {
    const { text, complete } = await carried(pair, { shape, how: '', at });
    expect(complete).toBe(true);
    const [before = ''] = text.split('event: error\n');
    expect(inLf(events.join('')).slice(0, before.length)).toBe(before);
    expect(text.match(/event: error\n/g)).toHaveLength(1);
  }
}

/** Each has its own relay, so that none waits for the resumptions of the others. */
const withRelay = (expectIt: (pair: RelayAndUpstream) => Promise<void>) => async () => {
  const pair = await start();
  try {
    await expectIt(pair);
  } finally {
    await pair.close();
  }
};

const cases = (Object.keys(SHAPES) as Shape[]).flatMap((shape): [string, () => Promise<void>][] => [
  ...Object.keys(RESUMES).map((how): [string, () => Promise<void>] => [
    `a stream with the shape "${shape}", of a service that ${how}, is the same wherever it breaks after its first id`,
    withRelay((pair) => isHealed(pair, shape, how)),
  ]),
  [
    `a stream with the shape "${shape}" ends with an error event if it breaks before its first id`,
    withRelay((pair) => endsWithAnError(pair, shape)),
  ],
]);

testSideBySide(cases, 6);
