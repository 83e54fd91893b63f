import { afterEach, expect, jest, test } from '@jest/globals';
import { Problem, type ProblemCode } from '../../src/errors.ts';
import { TOO_LONG } from '../../src/relay/message/deadlines.ts';
import { dechunk } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const LARGE = `data: ${'x'.repeat(70_000)}`;
const RUN = JSON.stringify({ eventType: 'asgard.run.init', requestId: 'r' });

const IDS: [string, first: string][] = [
  ['ids', `id: 1\ndata: ${RUN}\n\n`],
  ['no ids', `data: ${RUN}\n\n`],
];
const PLACES: [string, rest: string, isCut: boolean][] = [
  ['at an event boundary', '', false],
  ['in the middle of an event', 'id: 2\ndata: ha', false],
  ['inside an event too large to hold', LARGE, true],
];
const ENDS: [Problem, code: ProblemCode, string][] = [
  [TOO_LONG, 'deadline_exceeded', 'by its deadline'],
  [new Problem('draining', 'Over.'), 'answer_lost', 'by a shutdown'],
];
interface Ending {
  readonly first: string;
  readonly rest: string;
  readonly isCut: boolean;
  readonly problem: Problem;
  /** What the client is told. */
  readonly code: ProblemCode;
  readonly version: '1.1' | '1.0';
}

async function endsTruthfully({ first, rest, isCut, problem, code, version }: Ending): Promise<void> {
  const pair = await startRelayAndUpstream(
    (socket) => void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(first + rest)])),
  );
  try {
    const client = pair.ask({ headers: ['Connection: close'], version });
    await client.waitFor(isCut ? LARGE : first);
    pair.relay.open.endAll(problem);
    const { error } = await client.closed;
    const { body, complete } =
      version === '1.1'
        ? dechunk(client.text())
        : { body: client.text().split('\r\n\r\n')[1] ?? '', complete: error === undefined };
    expect(complete).toBe(!isCut);
    const [down, ending = ''] = body.split('event: error\n');
    expect(down).toBe(isCut ? first + LARGE : first);
    if (!isCut) expect(ending).toMatch(new RegExp(`^data: \\{.*"code":"${code}".*\\}\n\n$`));
    const { outcome } = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    expect(outcome).toBe(code);
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
    expect(pair.upstream.requests).toHaveLength(1);
  } finally {
    await pair.close();
  }
}

const cases = ENDS.flatMap(([problem, code, end]) =>
  IDS.flatMap(([ids, first]) =>
    PLACES.flatMap(([place, rest, isCut]) =>
      (['1.1', '1.0'] as const).map((version): [string, () => Promise<void>] => [
        `a stream that is ended early ${end}, with ${ids}, ${place}, HTTP/${version}`,
        () => endsTruthfully({ first, rest, isCut, problem, code, version }),
      ]),
    ),
  ),
);

testSideBySide(cases, 12);

afterEach(() => void jest.restoreAllMocks());

test('a stream that is ended early by a fault of the relay, with an error event, a line in the log, and no resumption', async () => {
  const pair = await startRelayAndUpstream((socket) => {
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('id: 1\ndata: a\n\n')]));
  });
  const client = pair.ask({ headers: ['Connection: close'] });
  await client.waitFor('data: a');
  jest.spyOn(Buffer, 'allocUnsafeSlow').mockImplementation(() => {
    throw new TypeError('a fault');
  });
  pair.upstream.sockets[0]?.write(chunk('data: half'));
  await client.closed;
  expect(dechunk(client.text())).toMatchObject({
    body: expect.stringMatching(/^id: 1\ndata: a\n\nevent: error\ndata: \{.*"code":"internal_error"/),
    complete: true,
  });
  const fault = await pair.relay.logLine(({ msg }) => msg === 'fault');
  expect(fault).toMatchObject({ err: { type: 'TypeError' } });
  expect(await pair.relay.logLine(({ bot }) => bot === 'acme/helper')).toMatchObject({
    outcome: 'internal_error',
    level: 'error',
  });
  expect(pair.upstream.requests).toHaveLength(1);
  await pair.close();
});
