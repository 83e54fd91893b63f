import { describe, expect, test } from '@jest/globals';
import { costsOf } from '../../bench/figures/profile.ts';
import { profileTable } from '../../bench/report/table.ts';

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
