import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterAll, describe, expect } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import {
  AS_USER,
  type CheckedOperations,
  checkOperations,
  type OperationsSetup,
} from '../harness/relay/check-operations.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { type Alter, answering, isOf } from '../harness/service/altering-service.ts';

afterAll(() => stopProcesses());

const FILE = 'sandbox/demo/fs/file';
const STAT = 'GET sandbox/demo/fs/stat';
const LIST = 'GET sandbox/demo/fs/list';
const WATCH = 'GET sandbox/demo/fs/watch';
const REMOVE = 'DELETE sandbox/demo/fs/item';

const checkSandbox = ({ more, args = AS_USER, ...setup }: OperationsSetup = {}) =>
  checkOperations({ args, more: { OPERATIONS: 'message,chat,sandbox', ...more }, ...setup });
const withService = (alter: Alter) => checkSandbox({ service: { alter } });
/** The rows about sandboxes, as `state operation says`. */
const rowsOf = ({ operations }: CheckedOperations) => operations.filter((row) => row.includes('sandbox'));
const problemsOf = ({ problems }: CheckedOperations) =>
  problems.map(({ about, says }) => `${about}: ${says}`);
const countOf = ({ requests }: CheckedOperations, line: string) =>
  requests.filter((request) => isOf(request, line)).length;
/** The paths of the files that were written. */
const pathsIn = ({ requests }: CheckedOperations) =>
  requests
    .filter((request) => isOf(request, `PUT ${FILE}`))
    .map(({ url }) => new URL(url, 'http://service').searchParams.get('path'));
/** Changes the target of requests for `line`. */
const withUrl =
  (line: string, change: (url: string) => string): Alter =>
  (request) =>
    isOf(request, line) ? { ...request, url: change(request.url) } : request;
const isAt = ({ method = '', url = '' }: IncomingMessage, line: string) => isOf({ method, url }, line);
/** The watch is of another folder, so that no change arrives. */
const elsewhere = withUrl(WATCH, (url) => url.replace(/path=[^&]*/, 'path=/'));
/** The check also judges the answer to its message, in which a pause of this machine is a silence. */
const BEATING = { ofRelay: { HEARTBEAT_MS: '200' }, ofCheck: { HEARTBEAT_MS: '2000' } };
const GONE = 'ok DELETE sandbox/:sandbox/fs/item: the file of this check is gone';

describe('a sandbox is not proved', () => {
  testSideBySide(
    [
      [
        'if the conversation has launched none',
        async () => {
          const metadata = { customChannelId: 'x', launchedSandboxes: [] };
          const checked = await checkSandbox({
            service: { alter: answering('GET channel/metadata', { status: 200, json: metadata }) },
          });
          expect(rowsOf(checked)).toEqual([
            'ok GET sandbox/:sandbox/fs/list: a sandbox that the conversation has not launched is refused with 403',
            'note sandbox: not proved: the conversation of this check has launched no sandbox',
          ]);
          expect(checked.requests.filter(({ url }) => url.includes('/sandbox/'))).toEqual([]);
        },
      ],
      [
        'without a message',
        async () => {
          const checked = await checkSandbox({ args: [...AS_USER, '--no-messages'] });
          expect([checked.code, rowsOf(checked).slice(1)]).toEqual([
            0,
            ['note sandbox: not proved, since no message was answered'],
          ]);
        },
      ],
      [
        'if the bot service does not know the conversation',
        async () => {
          const checked = await withService(answering('GET channel/metadata', { status: 404, json: {} }));
          expect(rowsOf(checked).slice(1)).toEqual([
            'note sandbox: not proved: the metadata of the conversation was answered with 404 (application/json)',
          ]);
        },
      ],
      [
        'if the group chat is off',
        async () => {
          const checked = await checkSandbox({ more: { OPERATIONS: 'message,sandbox' } });
          expect(checked.problems).toEqual([]);
          expect(rowsOf(checked)).toContain(
            'note sandbox: not proved: the group chat is off, so that no page can see which sandboxes there are',
          );
        },
      ],
    ],
    6,
  );
});

describe('a bot service', () => {
  // First the cases that wait for longest.
  testSideBySide(
    [
      [
        'that does not tell of a change, on a stream that beats, is noted',
        async () => {
          const checked = await checkSandbox({
            service: { alter: elsewhere },
            ...BEATING,
          });
          expect(checked.problems).toEqual([]);
          expect(rowsOf(checked)).toContainEqual(
            expect.stringMatching(
              /^note .*fs\/watch: begins, and is not held back, but did not name the file/,
            ),
          );
        },
      ],
      [
        'that keeps nothing of a file is a problem',
        async () => {
          const checked = await checkSandbox({
            service: { alter: answering(`PUT ${FILE}`, { status: 200, json: {} }) },
            ...BEATING,
          });
          expect(problemsOf(checked)).toEqual([
            'GET sandbox/:sandbox/fs/stat: says that the file is not there',
            'GET sandbox/:sandbox/fs/file: answered with 404 (application/json)',
            'GET sandbox/:sandbox/fs/list: does not have the file',
          ]);
          expect(rowsOf(checked).at(-1)).toMatch(
            /^note .*: 404 of the bot service: it does not have the file /,
          );
        },
      ],
      [
        'that names several sandboxes is proved with the first whose name the relay takes, in its directory',
        async () => {
          const launchedSandboxes = [
            { sandboxName: 'not/one', workingDirectory: '/not' },
            { sandboxName: 'demo', workingDirectory: '/home/demo' },
            { sandboxName: 'other', workingDirectory: '/other' },
          ];
          const json = { isSuccess: true, data: { launchedSandboxes } };
          const checked = await withService(answering('GET channel/metadata', { status: 200, json }));
          expect(rowsOf(checked).at(-1)).toBe(GONE);
          expect(pathsIn(checked)).toEqual([expect.stringMatching(/^\/home\/demo\/bot-relay-check-[^/]*$/)]);
        },
      ],
      [
        'that names a directory that the relay does not take is proved in another one',
        async () => {
          const entry = { sandboxName: 'demo', workingDirectory: '/home/../etc' };
          const json = { launchedSandboxes: [entry] };
          const checked = await withService(answering('GET channel/metadata', { status: 200, json }));
          expect(pathsIn(checked)).toEqual([expect.stringMatching(/^\/tmp\/bot-relay-check-[^/]*$/)]);
        },
      ],
      [
        'that refuses a file is a problem, and nothing is removed',
        async () => {
          const json = { code: 'READ_ONLY' };
          const checked = await withService(answering(`PUT ${FILE}`, { status: 409, json }));
          expect(problemsOf(checked)).toEqual([
            'PUT sandbox/:sandbox/fs/file: answered with 409 upstream_refused: {"code":"READ_ONLY"}',
          ]);
          expect(countOf(checked, REMOVE)).toBe(0);
        },
      ],
      [
        'whose answer to a file is not that of the relay is a problem, and the file is removed',
        async () => {
          const checked = await checkSandbox({
            front: {
              tamper(headers, req) {
                if (isAt(req, `PUT ${FILE}`)) delete headers['x-request-id'];
              },
            },
          });
          expect(problemsOf(checked)).toEqual([
            'PUT sandbox/:sandbox/fs/file: answered with 200 (application/json)',
          ]);
          expect(rowsOf(checked).at(-1)).toBe(GONE);
        },
      ],
      [
        'that changes a file is a problem',
        async () => {
          const checked = await withService((request) => ({
            ...request,
            body: request.body.replace('A file of the check', 'a file of the check'),
          }));
          expect(problemsOf(checked)).toEqual([
            expect.stringMatching(/fs\/file: the file is not what was uploaded/),
          ]);
        },
      ],
      [
        'that says another size is a problem',
        async () => {
          const json = { data: { exists: true, sizeBytes: 1 } };
          expect(problemsOf(await withService(answering(STAT, { status: 200, json })))).toEqual([
            expect.stringMatching(/fs\/stat: says 1 bytes, and the file has \d+$/),
          ]);
        },
      ],
      [
        'that gives the whole file for a part is a problem',
        async () => {
          const whole = withUrl(`GET ${FILE}`, (url) => url.replace(/&offset_bytes=.*/, ''));
          expect(problemsOf(await withService(whole))).toEqual([
            'GET sandbox/:sandbox/fs/file: offset_bytes and limit_bytes give another part of the file',
          ]);
        },
      ],
      [
        'that does not follow Range is noted',
        async () => {
          const checked = await withService((request) => {
            const { range: _, ...headers } = request.headers;
            return { ...request, headers };
          });
          expect(checked.problems).toEqual([]);
          expect(rowsOf(checked)).toContain(
            'note GET sandbox/:sandbox/fs/file: Range is not followed: the whole file comes',
          );
        },
      ],
      [
        'that gives another part for Range is a problem',
        async () => {
          const checked = await withService((request) =>
            isOf(request, `GET ${FILE}`) && request.headers.range !== undefined
              ? { ...request, headers: { ...request.headers, range: 'bytes=3-10' } }
              : request,
          );
          expect(problemsOf(checked)).toEqual([
            expect.stringMatching(/fs\/file: Range is answered with 206 .* and another part$/),
          ]);
        },
      ],
      [
        'that does not list a file is a problem, but not if it says that the list is not whole',
        async () => {
          const list = (truncated: boolean) =>
            withService(answering(LIST, { status: 200, json: { data: { entries: [], truncated } } }));
          expect(problemsOf(await list(false))).toEqual([
            'GET sandbox/:sandbox/fs/list: does not have the file',
          ]);
          expect((await list(true)).problems).toEqual([]);
        },
      ],
      [
        'without a watch is a problem',
        async () => {
          const checked = await withService(answering(WATCH, { status: 404, json: {} }));
          expect(checked.problems).toEqual([
            expect.objectContaining({
              about: 'GET sandbox/:sandbox/fs/watch',
              says: 'answered with 404 (application/json)',
              advice: expect.stringMatching(/^The bot service says that it does not have this/),
            }),
          ]);
        },
      ],
      [
        'that does not remove a file is a problem, with its path',
        async () => {
          const says = async (alter: Alter) => (await withService(alter)).problems.map((row) => row.says);
          const which = 'the file /home/demo/bot-relay-check-[-0-9a-f]{36}.txt in the sandbox demo';
          expect(await says(answering(REMOVE, { status: 422, json: {} }))).toEqual([
            expect.stringMatching(
              new RegExp(`^${which} was not removed: answered with 422 upstream_refused`),
            ),
          ]);
          expect(await says(answering(REMOVE, { status: 200, json: {} }))).toEqual([
            expect.stringMatching(new RegExp(`^${which} is still there`)),
          ]);
        },
      ],
    ],
    6,
  );
});

describe('a load balancer', () => {
  testSideBySide(
    [
      [
        'that buffers watches is a problem, and the file is removed',
        async () => {
          const checked = await checkSandbox({
            front: { buffers: true },
            ofCheck: { UPSTREAM_RESPONSE_TIMEOUT_MS: '4000' },
          });
          expect(checked.problems).toContainEqual(
            expect.objectContaining({
              about: 'GET sandbox/:sandbox/fs/watch',
              says: 'has not begun (ETIMEDOUT): something in between may wait for its end',
              advice: expect.stringMatching(/turn off buffering of responses also for GET …\/fs\/watch/),
            }),
          );
          expect(rowsOf(checked).at(-1)).toBe(GONE);
        },
      ],
      [
        'that lets neither changes nor heartbeats pass is a problem',
        async () => {
          const checked = await checkSandbox({
            service: { alter: elsewhere },
            ofRelay: { HEARTBEAT_MS: '600000' },
            ofCheck: { HEARTBEAT_MS: '200' },
          });
          expect(checked.problems).toContainEqual(
            expect.objectContaining({
              about: 'GET sandbox/:sandbox/fs/watch',
              says: expect.stringMatching(
                /^begins, but neither the change nor a heartbeat came within \d+\.\d s$/,
              ),
            }),
          );
        },
      ],
      [
        'that lets no change pass is noted if heartbeats are turned off',
        async () => {
          const checked = await checkSandbox({
            service: { alter: elsewhere },
            more: { HEARTBEAT_MS: '0' },
          });
          expect(checked.problems).toEqual([]);
          expect(rowsOf(checked)).toContainEqual(
            expect.stringMatching(/^note .*fs\/watch: begins, .*; heartbeats were not waited for$/),
          );
        },
      ],
      [
        'that ends watches is a problem',
        async () => {
          const checked = await checkSandbox({
            front: {
              answer: (req, res) =>
                isAt(req, WATCH) &&
                !!res
                  .writeHead(200, {
                    'Content-Type': 'text/event-stream',
                    'Cache-Control': 'no-cache, no-transform',
                    'X-Content-Type-Options': 'nosniff',
                    'X-Request-Id': 'a'.repeat(8),
                  })
                  .end(),
            },
          });
          expect(problemsOf(checked)).toEqual([
            expect.stringMatching(/fs\/watch: begins, and ended after .* without naming the file$/),
          ]);
        },
      ],
      [
        'that breaks watches off is a problem',
        async () => {
          const cut: ServerResponse[] = [];
          const checked = await checkSandbox({
            front: {
              answer(req, res) {
                if (isAt(req, WATCH)) cut.push(res);
                else if (isAt(req, `PUT ${FILE}`)) for (const one of cut) one.destroy();
                return false;
              },
            },
          });
          expect(problemsOf(checked)).toEqual([
            expect.stringMatching(/fs\/watch: begins, and broke off after /),
          ]);
          expect(rowsOf(checked).at(-1)).toBe(GONE);
        },
      ],
      [
        'that breaks off in between is a problem, and the file is removed all the same',
        async () => {
          const checked = await checkSandbox({
            front: { answer: (req) => isAt(req, STAT) && !!req.destroy() },
          });
          expect(problemsOf(checked)).toEqual([expect.stringMatching(/no answer from .* \(ECONNRESET\)$/)]);
          expect(rowsOf(checked).at(-1)).toBe(GONE);
          expect(countOf(checked, REMOVE)).toBe(1);
        },
      ],
      [
        'that breaks off the answer to a file is a problem, and the file is removed',
        async () => {
          const checked = await checkSandbox({
            front: {
              tamper(_headers, req) {
                if (isAt(req, `PUT ${FILE}`)) req.socket.destroy();
              },
            },
          });
          expect(problemsOf(checked)).toEqual([expect.stringMatching(/no answer from .* \(ECONNRESET\)$/)]);
          expect(rowsOf(checked).at(-1)).toBe(GONE);
        },
      ],
      [
        'that breaks off a removal is a problem, with the path of the file',
        async () => {
          const checked = await checkSandbox({
            front: { answer: (req) => isAt(req, REMOVE) && !!req.destroy() },
          });
          expect(problemsOf(checked)).toEqual([
            expect.stringMatching(
              /^DELETE .*: the file \/home\/demo\/\S+ in .* may still be there: no answer/,
            ),
          ]);
        },
      ],
      [
        'that answers for a sandbox that was not launched is a problem',
        async () => {
          const checked = await checkSandbox({
            front: {
              answer: (req, res) =>
                /sandbox\/bot-relay-check-/.test(req.url ?? '') &&
                !!res.writeHead(200, { 'X-Request-Id': 'a'.repeat(8) }).end('{}'),
            },
          });
          expect(problemsOf(checked)).toEqual([
            'GET sandbox/:sandbox/fs/list: a sandbox that the conversation has not launched is not refused: 200',
          ]);
        },
      ],
      [
        'that changes the headers of watches is a problem',
        async () => {
          const checked = await checkSandbox({
            front: {
              tamper(headers, req) {
                if (isAt(req, WATCH)) headers['cache-control'] = 'public';
              },
            },
          });
          expect(problemsOf(checked)).toEqual([
            'GET sandbox/:sandbox/fs/watch: Cache-Control does not say no-cache; Cache-Control does not say no-transform',
          ]);
        },
      ],
    ],
    6,
  );
});
