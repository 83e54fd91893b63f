import { afterAll, describe, expect, test } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { checkEnvironment, printCheck } from '../harness/relay/check.ts';
import {
  AS_BOTH,
  AS_USER,
  checkOperations,
  conversationsIn,
  LONG_TEXT,
} from '../harness/relay/check-operations.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { answering, isOf, type ServiceRequest } from '../harness/service/altering-service.ts';

afterAll(() => stopProcesses());

/** Refuses an upload whose file stands before the id. */
const wantsIdFirst = (request: ServiceRequest) =>
  isOf(request, 'POST blob') && request.body.indexOf('"file"') < request.body.indexOf('"customChannelId"')
    ? { status: 400, json: { code: 'ID_MUST_COME_FIRST' } }
    : request;

const ALL = { OPERATIONS: 'message,chat,files,metadata,sandbox' };

describe('a deployment with all groups on', () => {
  testSideBySide(
    [
      [
        'has no problem, and nothing stays at the bot service',
        async () => {
          const checked = await checkOperations({ text: LONG_TEXT, more: ALL });
          expect(checked.problems).toEqual([]);
          expect([checked.code, checked.messages]).toEqual([0, 2]);
          expect(checked.progress).toMatch(/^Sending up to 3 messages/);
          expect(checked.of('operations')).toEqual(Array(5).fill('ok on'));
          expect(checked.operations).toEqual([
            'ok GET channel/metadata: a conversation that nobody has begun is 404 of the bot service',
            'ok GET channel/metadata: the conversation of this check is there, under the id of the page',
            expect.stringMatching(/^ok GET message\/sse: begins with 3 events; it ended after /),
            'ok POST message/suspend: 404 of the bot service: there is nothing to stop',
            'ok POST blob: the bot service takes a file as the relay sends it: the id of the conversation behind the file',
            'ok GET channel-home/download: the uploaded file comes back as it was, and no browser shows it as a page',
            'ok GET metadata: is JSON, and nothing in it is named like a secret',
            'ok GET sandbox/:sandbox/fs/list: a sandbox that the conversation has not launched is refused with 403',
            'ok PUT sandbox/:sandbox/fs/file: the bot service takes a file',
            expect.stringMatching(
              /^ok GET sandbox\/:sandbox\/fs\/watch: begins, and names the file \S+ m?s after it was written$/,
            ),
            'ok GET sandbox/:sandbox/fs/stat: the file is there',
            'ok GET sandbox/:sandbox/fs/file: the file comes back as it was, whole and in parts, and no browser shows it as a page',
            'ok GET sandbox/:sandbox/fs/list: has the file',
            'ok DELETE sandbox/:sandbox/fs/item: the file of this check is gone',
            'ok POST channel/clear: answered with 204',
            'ok DELETE channel: the conversation of this check is gone',
          ]);
          // That of the first user, and what the second one may have begun.
          const deleted = checked.requests.filter((request) => isOf(request, 'DELETE channel'));
          expect([deleted.length, conversationsIn(deleted).length]).toEqual([2, 2]);
          expect(checked.of('users apart')).toEqual([
            'ok a second user who knows the id of a conversation does not get its run to stop, its metadata, its history, a feedback on its message, its file, a message with its file, its file in a sandbox, this file by another conversation',
          ]);
        },
      ],
      [
        'has live streams that beat',
        async () => {
          const checked = await checkOperations({
            service: { keepsLiveOpen: true },
            ofRelay: { HEARTBEAT_MS: '200' },
            ofCheck: { HEARTBEAT_MS: '5000' },
          });
          expect(checked.problems).toEqual([]);
          expect(checked.operations).toContain('ok GET message/sse: begins with 3 events, and beats');
        },
      ],
      [
        'is proved with a fresh conversation only, without a message, and the file begins one',
        async () => {
          const checked = await checkOperations({ args: [...AS_BOTH, '--no-messages'] });
          expect([checked.code, checked.messages, checked.progress]).toEqual([0, 0, '']);
          expect(checked.operations).toContain(
            'note GET channel/metadata: not proved with a conversation that exists, since no message was answered',
          );
          expect(checked.operations.at(-1)).toBe('ok DELETE channel: the conversation of this check is gone');
          expect(checked.of('users apart')).toEqual([expect.stringMatching(/does not get its file$/)]);
        },
      ],
      [
        'is proved as far as one user can, and the check says so',
        async () => {
          const checked = await checkOperations({ args: AS_USER });
          expect(checked.code).toBe(0);
          expect(checked.of('users apart')).toEqual([
            'note not proved that a user does not see the conversations of another: there is no second user',
          ]);
        },
      ],
      [
        'with CHANNELS=shared has conversations that nobody owns, and the check says so',
        async () => {
          const checked = await checkOperations({ more: { CHANNELS: 'shared' } });
          expect([checked.code, checked.problems]).toEqual([0, []]);
          expect(checked.progress).toMatch(/^Sending up to 2 messages/);
          expect(checked.of('users apart')).toEqual([
            'note with CHANNELS=shared nobody owns a conversation: every user who knows its id can read and write it',
          ]);
        },
      ],
    ],
    6,
  );
});

describe('groups that are off', () => {
  testSideBySide(
    [
      [
        'are no problem if the configuration says so',
        async () => {
          const checked = await checkOperations({ more: { OPERATIONS: 'message' } });
          expect(checked.problems).toEqual([]);
          expect(checked.of('operations')).toEqual(['ok on', ...Array(4).fill('ok off: answered with 501')]);
          expect(checked.operations).toEqual([
            expect.stringMatching(/^note DELETE channel: not tried, since the group chat is off/),
          ]);
        },
      ],
      [
        'are a problem if the configuration says that they are on, and the other way',
        async () => {
          const checked = await checkOperations({
            ofRelay: { OPERATIONS: 'message,chat,metadata' },
            ofCheck: { OPERATIONS: 'message,chat,files' },
          });
          expect(checked.problems).toEqual([
            expect.objectContaining({
              about: 'files',
              says: 'off at the running relay, and on in this configuration',
              advice: expect.stringMatching(/restart it/),
            }),
            expect.objectContaining({
              about: 'metadata',
              says: 'on at the running relay, and off in this configuration',
            }),
          ]);
        },
      ],
      [
        'take no message if this is the group message',
        async () => {
          const checked = await checkOperations({ more: { OPERATIONS: 'chat' } });
          expect([checked.problems, checked.messages]).toEqual([[], 1]);
          expect(checked.of('operations')[0]).toBe('ok off: answered with 501');
        },
      ],
      [
        'at the running relay alone refuse the message, and the check goes on',
        async () => {
          const checked = await checkOperations({ ofRelay: { OPERATIONS: 'chat' } });
          expect(checked.of('message')).toEqual(['problem answered with 501 operation_not_enabled']);
          expect(checked.of('operations')[1]).toBe('ok on');
        },
      ],
      [
        'for this bot and on for another are noted',
        async () => {
          const own = JSON.stringify({ 'demo/guide': { operations: ['files'] } });
          const checked = await checkOperations({
            args: [...AS_USER, '--no-messages'],
            more: {
              ...{ OPERATIONS: 'message', BOTS: 'demo/echo,demo/guide' },
              BOTS_FILE: `${freshFolder({ 'bots.json': own })}/bots.json`,
            },
          });
          const row = checked.rows.find(({ says }) => says === 'not proved: it is on for demo/guide only');
          expect(row).toMatchObject({
            state: 'note',
            about: 'files',
            advice: 'Prove it with --bot demo/guide.',
          });
        },
      ],
    ],
    6,
  );
});

describe('a bot service', () => {
  testSideBySide(
    [
      [
        'that refuses the order of the form is a problem',
        async () => {
          const { problems } = await checkOperations({ service: { alter: wantsIdFirst } });
          expect(problems).toEqual([
            expect.objectContaining({
              about: 'POST blob',
              says: 'answered with 400 upstream_refused: {"code":"ID_MUST_COME_FIRST"}',
              advice: expect.stringMatching(
                /^The relay writes the id of the conversation behind the file\. .* Until it does, take files out of OPERATIONS\.$/,
              ),
            }),
          ]);
        },
      ],
      [
        'that gives no id to a file is a problem',
        async () => {
          const alter = answering('POST blob', { status: 200, json: { ok: true } });
          const { problems } = await checkOperations({ service: { alter } });
          expect(problems).toEqual([expect.objectContaining({ about: 'POST blob' })]);
        },
      ],
      [
        'that does not say where a file is, is noted',
        async () => {
          const alter = answering('GET channel-home/download', { status: 404, json: {} });
          const checked = await checkOperations({ service: { alter } });
          expect(checked.problems).toEqual([]);
          expect(checked.operations).toContain(
            'note GET channel-home/download: not proved: the bot service does not say where it keeps an uploaded file',
          );
        },
      ],
      [
        'that says where a file is, and does not have it, is a problem',
        async () => {
          const blob = { blobId: 'b1', relativePath: 'uploads/a.txt' };
          const { problems, requests } = await checkOperations({
            service: { alter: answering('POST blob', { status: 200, json: [blob] }) },
          });
          expect(problems).toEqual([
            expect.objectContaining({
              about: 'GET channel-home/download',
              says: expect.stringMatching(/404/),
            }),
          ]);
          expect(requests.map(({ url }) => url).join()).toContain('relative_path=uploads%2Fa.txt');
        },
      ],
      [
        'whose metadata holds secrets is noted, by their names alone',
        async () => {
          const json = { data: { workflow: { llm: { apiKey: 'sk-not-to-be-shown' } }, maxTokens: 5 } };
          const checked = await checkOperations({
            service: { alter: answering('GET metadata', { status: 200, json }) },
          });
          expect(checked.problems).toEqual([]);
          expect(checked.operations).toContain(
            'note GET metadata: seems to hold secrets, which every user who is signed in can read: data.workflow.llm.apiKey',
          );
          expect(JSON.stringify(checked.rows)).not.toContain('not-to-be-shown');
        },
      ],
      [
        'without an operation is a problem, with advice',
        async () => {
          const { problems } = await checkOperations({
            service: { alter: answering('GET metadata', { status: 500 }) },
          });
          expect(problems).toEqual([
            expect.objectContaining({
              about: 'GET metadata',
              says: 'answered with 502 upstream_bad_response',
              advice: expect.stringMatching(/take the group out of OPERATIONS/),
            }),
          ]);
        },
      ],
      [
        'that forgets a conversation after its message is a problem, since clients open a paid turn',
        async () => {
          const alter = answering('GET channel/metadata', { status: 404, json: {} });
          const { problems } = await checkOperations({ service: { alter } });
          expect(problems).toEqual([
            expect.objectContaining({
              about: 'GET channel/metadata',
              advice: expect.stringMatching(/may open a paid turn at each load/),
            }),
          ]);
        },
      ],
      [
        'that only says that it deletes is a problem',
        async () => {
          const alter = answering('DELETE channel', { status: 204 });
          const { problems } = await checkOperations({ service: { alter } });
          expect(problems).toEqual([
            expect.objectContaining({
              about: 'DELETE channel',
              says: expect.stringMatching(/^the conversation bot-relay-check-.* is still there/),
            }),
          ]);
        },
      ],
      [
        'that cannot stop, clear or delete is a problem',
        async () => {
          const refused = { status: 422, json: { code: 'NO' } };
          const alter = (request: ServiceRequest) =>
            ['POST message/suspend', 'POST channel/clear', 'DELETE channel'].some((line) =>
              isOf(request, line),
            )
              ? refused
              : request;
          const { problems } = await checkOperations({ service: { alter } });
          expect(problems.map(({ about }) => about)).toEqual([
            'POST message/suspend',
            'POST channel/clear',
            'DELETE channel',
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
        'that buffers live streams is a problem',
        async () => {
          const { problems } = await checkOperations({
            service: { keepsLiveOpen: true },
            front: { buffers: true },
            args: [...AS_USER],
            ofCheck: { UPSTREAM_RESPONSE_TIMEOUT_MS: '4000' },
          });
          expect(problems).toContainEqual(
            expect.objectContaining({
              about: 'GET message/sse',
              says: 'has not begun (ETIMEDOUT): something in between may wait for its end',
              advice: expect.stringMatching(/turn off buffering of responses also for GET/),
            }),
          );
        },
      ],
      [
        'that drops heartbeats is a problem',
        async () => {
          const { problems } = await checkOperations({
            service: { keepsLiveOpen: true },
            more: { HEARTBEAT_MS: '600000' },
            args: [...AS_USER],
            ofCheck: { HEARTBEAT_MS: '1500' },
          });
          // On a busy machine, the answer to the message may also be silent for so long.
          expect(problems).toContainEqual(
            expect.objectContaining({
              about: 'GET message/sse',
              says: expect.stringMatching(/^begins with 3 events, but no heartbeat came in /),
            }),
          );
        },
      ],
      [
        'that hands only /generic/ to the relay is a problem, once',
        async () => {
          const { problems, operations } = await checkOperations({
            front: {
              answer: (req, res) =>
                /^\/ns\//.test(req.url ?? '') &&
                !!res.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>'),
            },
          });
          expect(problems).toEqual([
            expect.objectContaining({
              check: 'operations',
              about: 'message',
              says: 'not proved: answered with 200 (text/html)',
              advice: expect.stringMatching(/every path below \/ns\/ and \/generic\//),
            }),
          ]);
          // Nor could the conversation be removed.
          expect(operations).toEqual([expect.stringMatching(/^note DELETE channel: not tried/)]);
        },
      ],
      [
        'that refuses DELETE is a problem',
        async () => {
          const { problems } = await checkOperations({
            front: { answer: (req, res) => req.method === 'DELETE' && !!res.writeHead(405).end() },
          });
          expect(problems).toEqual([
            expect.objectContaining({ about: 'DELETE channel', says: 'answered with 405 (no type)' }),
          ]);
        },
      ],
      [
        'that does not wait for a removal is a problem',
        async () => {
          const { problems } = await checkOperations({
            front: {
              answer: (req, res) =>
                /channel\/clear/.test(req.url ?? '') && !!res.writeHead(504, { Server: 'front' }).end(),
            },
          });
          expect(problems).toEqual([
            expect.objectContaining({
              about: 'POST channel/clear',
              says: 'answered with 504 (no type, from front)',
              advice: expect.stringMatching(/^Let the load balancer wait longer/),
            }),
          ]);
        },
      ],
      [
        'that changes the headers of files is a problem',
        async () => {
          const { problems } = await checkOperations({
            front: {
              tamper(headers, { url = '' }) {
                if (!url.includes('/download')) return;
                headers['content-disposition'] = 'inline';
                delete headers['content-security-policy'];
              },
            },
          });
          expect(problems).toEqual([
            expect.objectContaining({
              about: 'GET channel-home/download',
              says: 'Content-Disposition is not attachment; Content-Security-Policy does not say sandbox',
            }),
          ]);
        },
      ],
    ],
    6,
  );
});

test('a second user needs a password of their own', async () => {
  const environment = checkEnvironment('http://127.0.0.1:9', { CHECK_PASSWORD: CANARY.password });
  const { code, progress } = await printCheck(['--through', 'http://127.0.0.1:9', ...AS_BOTH], environment);
  expect(code).toBe(64);
  expect(progress).toBe(
    'There is no terminal to ask for the password: set CHECK_OTHER_PASSWORD or give --other-password-file.\n',
  );
});
