import type { IncomingMessage } from 'node:http';
import { afterAll, expect } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type CheckedOperations, checkOperations, LONG_TEXT } from '../harness/relay/check-operations.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { isOf, type ServiceRequest, withIds } from '../harness/service/altering-service.ts';

afterAll(() => stopProcesses());

const openIn = ({ rows }: CheckedOperations) =>
  rows
    .filter(({ state, check }) => state === 'problem' && check === 'users apart')
    .map(({ says }) => /gets (.*)$/.exec(says)?.[1]);

/** Sees the requests of a message through the load balancer, which are: one without a session, then those of users. */
const atMessages = (hook: (number: number) => boolean) => {
  let messages = 0;
  return (req: IncomingMessage) =>
    req.method === 'POST' &&
    /message\/sse$/.test(req.url ?? '') &&
    req.headers['content-type'] === 'application/json' &&
    hook(++messages);
};

const SANDBOXES = { OPERATIONS: 'message,chat,sandbox' };
const ALL = { OPERATIONS: 'message,chat,files,metadata,sandbox' };
const OPEN_SANDBOX = [
  'its file in a sandbox: 200 (application/octet-stream)',
  'this file by another conversation: 200 (application/octet-stream)',
];

/**
 * As long as the first user has a file, every conversation has launched a sandbox named `demo`. With `isOne`, it is that
 * of the first user; else it is empty.
 */
function sameNames(isOne: boolean) {
  let first: string | undefined;
  return (request: ServiceRequest) => {
    const id = new URL(request.url, 'http://service').searchParams.get('custom_channel_id') ?? '';
    if (isOf(request, 'PUT sandbox/demo/fs/file')) first = id;
    if (isOf(request, 'DELETE sandbox/demo/fs/item')) first = undefined;
    if (first === undefined || first === id) return request;
    if (isOf(request, 'GET channel/metadata'))
      return { status: 200, json: { launchedSandboxes: [{ sandboxName: 'demo' }] } };
    if (!request.url.includes('/sandbox/demo/')) return request;
    return isOne ? { ...request, url: request.url.replace(id, first) } : { status: 404, json: {} };
  };
}

testSideBySide(
  [
    [
      'a bot service that ignores the id of a conversation is a problem, with all that a second user gets',
      async () => {
        const alter = withIds(() => 'the-only-one');
        const checked = await checkOperations({ text: LONG_TEXT, service: { alter }, more: ALL });
        expect(checked.code).toBe(1);
        expect(checked.operations.slice(0, 2)).toEqual([
          'problem GET channel/metadata: the bot service has a conversation that nobody has begun: it may mix up conversations',
          'problem GET channel/metadata: names another conversation than the page has asked for: the-only-one',
        ]);
        expect(openIn(checked)).toEqual([
          'its run to stop: 200 (application/json)',
          'its metadata: 200 (application/json)',
          'its history: a stream that shows what was said',
          'a feedback on its message: 200 (application/json)',
          'its file: 200 (text/plain)',
          ...OPEN_SANDBOX,
        ]);
        // The relay itself keeps the file from the second user's messages.
        expect(checked.of('users apart').at(-1)).toMatch(/^ok .*not get a message with its file$/);
        const [{ advice } = { advice: '' }] = checked.rows.filter(
          ({ check, state }) => check === 'users apart' && state === 'problem',
        );
        expect(advice).toMatch(/^Stop using this deployment .*CHANNELS of the running relay/);
      },
    ],
    [
      'a bot service that takes a feedback on a message of another conversation is a problem',
      async () => {
        const alter = (request: ServiceRequest) =>
          request.url.includes('/message/feedback') ? { status: 200, json: {} } : request;
        expect(openIn(await checkOperations({ service: { alter } }))).toEqual([
          'a feedback on its message: 200 (application/json)',
        ]);
      },
    ],
    [
      'a bot service that stops a run by its id alone is a problem',
      async () => {
        const alter = (request: ServiceRequest) =>
          request.url.includes('request_id=') ? { status: 200, json: {} } : request;
        expect(openIn(await checkOperations({ service: { alter } }))).toEqual([
          'its run to stop: 200 (application/json)',
        ]);
      },
    ],
    [
      'a question without an answer proves nothing, and the others are asked all the same',
      async () => {
        let other: string | undefined;
        const checked = await checkOperations({
          front: {
            answer({ method, url = '', headers, socket }) {
              const isStop = url.includes('request_id=');
              if (isStop) other = headers.cookie;
              const isUnanswered = isStop || (method === 'GET' && url.includes('channel/metadata'));
              if (!isUnanswered || other === undefined || headers.cookie !== other) return false;
              socket.destroy();
              return true;
            },
          },
        });
        expect(checked.of('users apart')).toEqual([
          'note its run to stop not proved: answered with ECONNRESET',
          'note its metadata not proved: answered with ECONNRESET',
          expect.stringMatching(/^ok .* does not get its history, .*its file/),
        ]);
        expect(checked.operations.at(-1)).toBe('ok DELETE channel: the conversation of this check is gone');
      },
    ],
    [
      'a 404 that comes after the run was over proves nothing about who may stop it',
      async () => {
        const over = Promise.withResolvers<void>();
        const isFirst = atMessages((number) => number === 2);
        const checked = await checkOperations({
          front: {
            answer(req, res) {
              if (isFirst(req)) res.once('close', () => setTimeout(() => setImmediate(over.resolve), 300));
              if (!req.url?.includes('request_id=')) return false;
              const headers = { 'Content-Type': 'application/json', 'X-Request-Id': 'late' };
              void over.promise.then(() => res.writeHead(404, headers).end('{}'));
              return true;
            },
          },
        });
        expect(checked.of('users apart')[0]).toBe(
          'note its run to stop not proved: answered with 404 after the run was over',
        );
      },
    ],
    [
      'a bot service that takes ids without case keeps the conversations of a relay apart',
      async () => {
        const checked = await checkOperations({ service: { alter: withIds((id) => id.toLowerCase()) } });
        expect([checked.problems, openIn(checked)]).toEqual([[], []]);
      },
    ],
    [
      'a bot service that takes a sandbox from the path alone is a problem, if others have one of that name',
      async () => {
        const checked = await checkOperations({ service: { alter: sameNames(true) }, more: SANDBOXES });
        expect(openIn(checked)).toEqual(OPEN_SANDBOX);
        // The first user's file is removed after the second user has asked for it.
        expect(checked.operations).toContain(
          'ok DELETE sandbox/:sandbox/fs/item: the file of this check is gone',
        );
      },
    ],
    [
      'users whose sandboxes have the same name are apart',
      async () => {
        const service = { alter: sameNames(false) };
        const checked = await checkOperations({ text: LONG_TEXT, service, more: SANDBOXES });
        expect([checked.problems, openIn(checked)]).toEqual([[], []]);
        expect(checked.of('users apart')).toEqual([
          expect.stringMatching(/^ok .* its file in a sandbox, this file by another conversation$/),
        ]);
      },
    ],
    [
      'a running relay with CHANNELS=shared is a problem if the configuration says scoped',
      async () => {
        const checked = await checkOperations({ text: LONG_TEXT, ofRelay: { CHANNELS: 'shared' } });
        expect(openIn(checked)).toEqual([
          'its run to stop: 200 (application/json)',
          'its metadata: 200 (application/json)',
          'its history: a stream that shows what was said',
          'a feedback on its message: 200 (application/json)',
          'its file: 200 (text/plain)',
        ]);
      },
    ],
    [
      'a relay that lets a foreign file pass is a problem, and its message is counted as announced',
      async () => {
        const isForeign = atMessages((number) => number === 3);
        const checked = await checkOperations({
          front: {
            answer: (req, res) =>
              isForeign(req) &&
              !!res.writeHead(200, { 'Content-Type': 'text/event-stream' }).end('data: 1\n\n'),
          },
        });
        expect(openIn(checked)).toEqual(['a message with its file: a stream']);
        expect(checked.messages).toBe(3);
        expect(checked.progress).toMatch(/^Sending up to 3 messages,/);
      },
    ],
    [
      'a foreign file that the bot service refuses proves nothing, and is noted',
      async () => {
        const isForeign = atMessages((number) => number === 3);
        const failed = { type: 'about:blank', status: 404, code: 'upstream_refused' };
        const checked = await checkOperations({
          text: LONG_TEXT,
          front: {
            answer: (req, res) =>
              isForeign(req) &&
              !!res
                .writeHead(200, { 'Content-Type': 'text/event-stream', 'X-Request-Id': 'request-0001' })
                .end(`event: error\ndata: ${JSON.stringify(failed)}\n\n`),
          },
        });
        expect(openIn(checked)).toEqual([]);
        expect(checked.of('users apart')[0]).toBe(
          'note a message with its file not proved: answered with 404 upstream_refused',
        );
      },
    ],
    [
      'an answer that proves nothing is noted',
      async () => {
        const isForeign = atMessages((number) => number === 3);
        const checked = await checkOperations({
          text: LONG_TEXT,
          front: { answer: (req, res) => isForeign(req) && !!res.writeHead(502).end() },
        });
        expect(checked.of('users apart')[0]).toBe(
          'note a message with its file not proved: answered with 502 (no type)',
        );
        expect([checked.code, checked.messages]).toEqual([0, 3]);
      },
    ],
    [
      'a second user who cannot sign in is a problem',
      async () => {
        const checked = await checkOperations({ ofCheck: { CHECK_OTHER_PASSWORD: 'not the right one' } });
        expect(checked.of('sign-in')).toEqual([
          'ok ada is signed in',
          'problem answered with 401 invalid_credentials',
        ]);
        expect(checked.of('users apart')).toEqual([]);
        expect(JSON.stringify(checked.rows)).not.toContain('not the right one');
      },
    ],
  ],
  2,
);
