import type { Socket } from 'node:net';
import { afterEach, expect, test } from '@jest/globals';
import { type Checked, checkEnvironment, runCheck } from '../harness/relay/check.ts';
import {
  plainAnswer,
  type RawRequest,
  type RawUpstream,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

let service: RawUpstream;
afterEach(() => service.close());

const event = (eventType: string, requestId: string, id = '') =>
  `${id}data: ${JSON.stringify({ eventType, requestId })}\n\n`;
/** Too few events to judge their arrival, so that a pause of this machine is no finding. */
const run = (requestId: string, id = '') =>
  event('asgard.run.init', requestId, id) + event('asgard.run.done', requestId);

/** Runs the check with a bot service that answers each message with a run, and a resumption with `resume`. */
async function check(
  resume: (socket: Socket) => void,
  { id = 'id: né-1\n', environment = {} }: { id?: string; environment?: Record<string, string> } = {},
): Promise<Checked> {
  let runs = 0;
  service = await startRawUpstream((socket, { all }) => {
    if (all('last-event-id').length > 0) resume(socket);
    else socket.write(wholeStream(run(`run-${++runs}`, id)));
  });
  // Without the group chat, no conversation is deleted.
  return runCheck([], checkEnvironment(service.url, { OPERATIONS: 'message', ...environment }));
}

const whole = (text: string) => (socket: Socket) => void socket.write(wholeStream(text));
const lastRequest = () => service.requests.at(-1) as RawRequest;

test('a bot service that goes on after the last id is fine', async () => {
  const checked = await check(whole(event('asgard.run.done', 'run-2')));
  expect(checked.of('resumption')).toEqual(['ok a stream goes on after its last id, and nothing runs again']);
  expect(checked.code).toBe(0);
  expect(checked.progress).toContain('Sending up to 2 messages');
  const [, second] = service.requests;
  expect(lastRequest().body).toEqual(second?.body);
  expect(Buffer.from(String(lastRequest().all('last-event-id')), 'latin1').toString()).toBe('né-1');
  expect([checked.messages, service.requests.length]).toEqual([2, 3]);
});

test('one that repeats the beginning of the same run is fine', async () => {
  const checked = await check(whole(run('run-2')));
  expect(checked.of('resumption')).toEqual([expect.stringMatching(/^ok /)]);
});

test('one that runs the message again is a problem', async () => {
  const checked = await check(whole(run('run-3')));
  expect(checked.of('resumption')).toEqual([
    'problem the bot service runs the message again instead of resuming its stream',
  ]);
  expect(checked.code).toBe(1);
  const { advice } = checked.rows.find((row) => row.check === 'resumption') ?? {};
  expect(advice).toContain('RESUME_UPSTREAM=off');
});

test.each([
  ['ends the stream at once', whole('')],
  [
    'closes the connection in the stream',
    (socket: Socket) =>
      void socket.end('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\n'),
  ],
  ['answers 404', (socket: Socket) => void socket.write(plainAnswer('404 No', []))],
  ['answers 204', (socket: Socket) => void socket.write(plainAnswer('204 No Content', []))],
])('one that %s is only noted', async (_, resume) => {
  const checked = await check(resume);
  expect(checked.of('resumption')).toEqual([expect.stringMatching(/^note /)]);
  expect(checked.code).toBe(0);
});

test('without ids, or with RESUME_UPSTREAM=off, nothing more is sent', async () => {
  const idless = await check(whole(''), { id: '' });
  expect(idless.of('resumption')).toEqual([
    expect.stringMatching(/^note not tried: the answer carries no id/),
  ]);
  expect([idless.messages, service.requests.length]).toEqual([1, 1]);
  await service.close();
  const off = await check(whole(''), { environment: { RESUME_UPSTREAM: 'off' } });
  expect([off.of('resumption'), off.messages, service.requests.length]).toEqual([[], 1, 1]);
});
