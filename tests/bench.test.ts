import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { costsOf } from '../bench/figures/profile.ts';
import { chart } from '../bench/report/chart.ts';
import { profileTable } from '../bench/report/table.ts';
import { driftOf, readResults, writeReport } from '../bench/report/write.ts';
import { answerReader } from '../bench/support/answer-reader.ts';
import { settingsFrom } from '../bench/support/settings.ts';
import { figureOf, quantile } from '../bench/support/statistics.ts';
import { eventReader, MIN_EVENT_BYTES, restOfEvent, startOfEvent } from '../bench/support/timed-event.ts';
import { ROOT } from './harness/documents/sources.ts';

/** What the report writes, in a copy of the documents. */
describe('the report', () => {
  const WRITTEN = ['bench/results.json', 'bench/results.svg', 'bench/README.md', 'docs/performance.md'];
  let root = '';
  const read = (path: string) => readFileSync(join(root, path), 'utf8');
  const write = (path: string, text: string) => writeFileSync(join(root, path), text);

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'report-'));
    for (const folder of ['bench', 'docs']) mkdirSync(join(root, folder));
    for (const path of WRITTEN) copyFileSync(join(ROOT, path), join(root, path));
  });
  afterEach(() => rmSync(root, { recursive: true }));

  test('is what the documents and the chart of this project have', () => {
    expect(driftOf()).toEqual([]);
  });

  test('is written again as it was, from the results', () => {
    const before = WRITTEN.map(read);
    writeReport(readResults(root), root);
    expect(WRITTEN.map(read)).toEqual(before);
  });

  test('follows the results, and keeps the text around its sections', () => {
    const results = readResults(root);
    const [first, ...others] = results.peers;
    const peers = [{ ...first, name: '<a> & | b' } as (typeof results.peers)[0], ...others];
    writeReport({ ...results, peers }, root);
    expect(driftOf(root)).toEqual([]);
    expect(read('bench/results.svg')).toContain('&lt;a&gt; &amp; | b');
    expect(read('docs/performance.md')).toContain('\\<a\\> & \\| b');
    writeReport(results, root);
    for (const path of WRITTEN) expect(read(path)).toBe(readFileSync(join(ROOT, path), 'utf8'));
  });

  test('is a picture also without any results', () => {
    expect(chart({ ...readResults(root), peers: [] })).not.toMatch(/NaN|Infinity/);
  });

  test('writes everything that it can before it reports a missing section', () => {
    const results = { ...readResults(root), rounds: 99 };
    write('bench/README.md', 'Figures:\n');
    expect(() => writeReport(results, root)).toThrow(
      'bench/README.md: There should be one <!-- bench:tables -->',
    );
    expect(readResults(root)).toEqual(results);
    expect(read('bench/README.md')).toBe('Figures:\n');
  });

  test.each([
    ['docs/performance.md', '<!-- bench:summary -->', ''],
    ['docs/performance.md', '| ratio |', '| factor |'],
    ['bench/README.md', '<!-- /bench:tables -->', ''],
    ['bench/results.svg', '</svg>', ''],
  ])('differs if %s has, instead of %s, "%s"', (path, right, wrong) => {
    expect(read(path)).toContain(right);
    write(path, read(path).replace(right, wrong));
    expect(driftOf(root).map((fault) => fault.split(':')[0])).toEqual([path]);
  });
});

test.each([
  [[9, 10, 2, 100, 3], { median: 9, min: 2, max: 100 }],
  [[4, 1, 100, 2], { median: 3, min: 1, max: 100 }],
  [[-0.5, 10, -20], { median: -0.5, min: -20, max: 10 }],
])('a figure over the rounds %j keeps them beside %j', (rounds, figure) => {
  expect(figureOf(rounds)).toEqual({ ...figure, rounds });
});

test('a figure without rounds, or with one that is not a finite number, is refused', () => {
  expect(() => figureOf([])).toThrow(RangeError);
  expect(() => figureOf([1, Number.NaN])).toThrow('No figure comes of these rounds: [1, NaN]');
});

test('a quantile is one of the values, by nearest rank', () => {
  expect(quantile([30, 10, 20], 0.5)).toBe(20);
  expect(quantile([1, 2, 3, 4], 0.99)).toBe(4);
});

const frame = (url: string, functionName = 'work') => ({
  ...{ url, functionName, scriptId: '1', lineNumber: 0, columnNumber: 0 },
});
const FRAMES = [
  frame('', '(root)'),
  frame('', '(idle)'),
  frame('node:inspector', 'post'),
  frame('', '(garbage collector)'),
  frame('file:///app/dist/relay/message/carry.js'),
  frame('file:///app/dist/relay/upstream/send.js'),
  frame('file:///app/dist/app.js'),
  frame('file:///app/node_modules/@scope/one/dist/index.js'),
  frame('node:internal/streams/readable'),
  frame('', 'writev'),
  frame('', 'slice'),
];

describe('the profile of a message', () => {
  const nodes = FRAMES.map((callFrame, n) => ({ id: n + 1, callFrame, hitCount: 1 }));
  const samples = FRAMES.map((_frame, n) => n + 1);
  const cpu = { nodes, samples, timeDeltas: FRAMES.map((_frame, n) => 100 * n), startTime: 0, endTime: 1 };
  const leaves = FRAMES.map((callFrame, id) => ({ callFrame, id, selfSize: 1_024 * id, children: [] }));
  const root = { callFrame: frame('', '(root)'), id: 99, selfSize: 0, children: leaves };
  const costs = costsOf(cpu, { head: root }, 10);

  test('adds up time and allocations by room, package and part of Node.js, and leaves idle time out', () => {
    expect(costs).toEqual([
      { part: 'Node.js and V8, native', us: 100, kib: 1 },
      { part: '`relay/`', us: 90, kib: 0.9 },
      { part: 'writing to sockets', us: 90, kib: 0.9 },
      { part: 'Node.js, in JavaScript', us: 80, kib: 0.8 },
      { part: '@scope/one', us: 70, kib: 0.7 },
      { part: '`app.ts`', us: 60, kib: 0.6 },
      { part: 'garbage collection', us: 30, kib: 0.3 },
    ]);
  });

  test('is a table that adds up to the whole', () => {
    const small = { part: 'small', us: 1, kib: 0.01 };
    const lines = profileTable([...costs, small]).split('\n');
    expect(lines.slice(-2)).toEqual(['| all others | 1 | 0.0 |', '| **a message** | 521 | 5.2 |']);
  });
});

const HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';

/** Gives `pieces` to the reader, one after the other. */
function read(...pieces: string[]): { bodies: string[]; ends: number } {
  const bodies: string[] = [];
  let ends = 0;
  const push = answerReader({
    onBody: (bytes) => bodies.push(bytes.toString('latin1')),
    onEnd: () => ends++,
  });
  for (const piece of pieces) push(Buffer.from(piece, 'latin1'));
  return { bodies, ends };
}

test('the reader of answers gives the body without its framing, and says when the answer is over', () => {
  const { bodies, ends } = read(`${HEAD}5\r\nhello\r\n`, '6\r\n world\r\n', '0\r\n\r\n');
  expect(bodies.join('')).toBe('hello world');
  expect(ends).toBe(1);
});

test('the reader of answers gives the same wherever an answer is split', () => {
  const answer = `${HEAD}5\r\nhello\r\nb\r\n\r\n0\r\n world\r\n0\r\n\r\n`;
  for (let at = 1; at < answer.length; at++) {
    const { bodies, ends } = read(answer.slice(0, at), answer.slice(at));
    expect(bodies.join('')).toBe('hello\r\n0\r\n world');
    expect(ends).toBe(1);
  }
});

test('the reader of answers reads several answers in a row', () => {
  const answer = `${HEAD}2\r\nhi\r\n0\r\n\r\n`;
  expect(read(answer + answer)).toEqual({ bodies: ['hi', 'hi'], ends: 2 });
});

test('an answer that breaks off does not end', () => {
  expect(read(`${HEAD}5\r\nhello\r\n0\r\n`).ends).toBe(0);
});

test('the reader of answers refuses everything but a chunked 200', () => {
  expect(() => read('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n')).toThrow('502');
  expect(() => read('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi')).toThrow('not chunked');
  expect(() => read(`${HEAD}zz\r\n`)).toThrow('no size');
});

const BYTES = 120;
const event = (n: number) => startOfEvent(n) + restOfEvent(BYTES);

/** The delays that the reader finds in `pieces`. */
function delaysIn(...pieces: string[]): number[] {
  const delays: number[] = [];
  const reader = eventReader(BYTES, (delayMs) => delays.push(delayMs));
  for (const piece of pieces) reader.push(Buffer.from(piece, 'latin1'));
  reader.end();
  return delays;
}

test('an event is one event of the given length', () => {
  expect(event(7)).toHaveLength(BYTES);
  expect(event(7)).toMatch(/^data: \{"n":"0*7","at":"\d+","fill":"x+"\}\n\n$/);
  expect(() => restOfEvent(MIN_EVENT_BYTES - 1)).toThrow(RangeError);
});

test('the reader of events gives the delay of each event, wherever the stream is split', () => {
  const stream = event(0) + event(1);
  for (let at = 1; at < stream.length; at++) {
    const delays = delaysIn(stream.slice(0, at), stream.slice(at));
    expect(delays).toHaveLength(2);
    for (const delay of delays) expect(delay).toBeGreaterThanOrEqual(0);
  }
});

test('heartbeats between events are skipped', () => {
  expect(delaysIn(`:\n${event(0)}:`, `\n:\n${event(1)}`)).toHaveLength(2);
});

test('a missing, repeated, changed or incomplete event is an error', () => {
  expect(() => delaysIn(event(0), event(2))).toThrow('event 1');
  expect(() => delaysIn(event(0), event(0))).toThrow('event 1');
  expect(() => delaysIn(event(0).replace('xx', 'xy'))).toThrow('event 0');
  expect(() => delaysIn(event(0).replace('data', 'dado'))).toThrow('event 0');
  expect(() => delaysIn(event(0), event(1).slice(0, 50))).toThrow('inside event 1');
});

afterEach(() => {
  jest.restoreAllMocks();
});

describe('the settings of the comparison', () => {
  test('are five whole rounds of all peers, whose results go into a folder of their own', () => {
    expect(settingsFrom([], ['nginx'])).toEqual({
      ...{ rounds: 5, scale: 1, only: undefined, out: 'bench-results', profile: false },
    });
  });

  test('can be smaller, of some peers, and kept in the project', () => {
    const args = ['--rounds', '1', '--scale', '0.5', '--only', 'nginx, fastify', '--record'];
    expect(settingsFrom(args, ['nginx', 'fastify', 'hono'])).toEqual({
      ...{ rounds: 1, scale: 0.5, only: ['nginx', 'fastify'], out: undefined, profile: false },
    });
  });

  test.each([
    [['--only', 'nginx,another'], 'another'],
    [['--rounds', '0'], '--rounds'],
    [['--scale', 'much'], '--scale'],
    [['--fast'], '--fast'],
  ])('%j is refused with a message that names the error', (args, named) => {
    jest.spyOn(process, 'exit').mockImplementation((code) => {
      throw new Error(`exit ${code}`);
    });
    let printed = '';
    jest.spyOn(process.stderr, 'write').mockImplementation((text) => {
      printed += text;
      return true;
    });
    expect(() => settingsFrom(args, ['nginx'])).toThrow('exit 64');
    expect(printed).toContain(named);
    expect(printed).toContain('Usage: npm run bench');
  });
});
