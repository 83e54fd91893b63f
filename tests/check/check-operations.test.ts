import { afterAll, expect, test } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { checkEnvironment, printCheck, type Row } from '../harness/relay/check.ts';
import {
  type CheckedDeployment,
  checkDeployment,
  type Deployment,
} from '../harness/relay/checked-deployment.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { CANARY, OTHER_USER, USER } from '../harness/relay/relay.ts';
import {
  type Alter,
  answering,
  isOf,
  type ServiceRequest,
  withIds,
} from '../harness/service/altering-service.ts';

/** The bot repeats it word by word, which leaves time for what must be answered during its run. */
const LONG_TEXT = 'one two three four five six seven eight nine ten eleven twelve '.repeat(4).trim();
const AS_USER = ['--user', USER.name];
const AS_BOTH = [...AS_USER, '--other-user', OTHER_USER.name];

interface CheckedOperations extends CheckedDeployment {
  /** The operations' rows, as `state operation says`. */
  readonly operations: readonly string[];
  /** All rows that are problems. */
  readonly problems: readonly Row[];
}

/** Checks a deployment as two users, with every group but sandboxes. Throws if the check sends more than it announced. */
async function checkOperations({
  args = AS_BOTH,
  more,
  ...setup
}: Deployment = {}): Promise<CheckedOperations> {
  const environment = { RESUME_UPSTREAM: 'off', OPERATIONS: 'message,chat,files,metadata', ...more };
  const checked = await checkDeployment({ args, more: environment, ...setup });
  const announced = Number(/^Sending up to (\d+) message/.exec(checked.progress)?.[1] ?? 0);
  if (checked.messages > announced) throw new Error(`${announced} announced, ${checked.messages} sent`);
  const { rows } = checked;
  return {
    ...checked,
    operations: rows
      .filter(({ check }) => check === 'operation')
      .map(({ state, about, says }) => `${state} ${about}: ${says}`),
    problems: rows.filter(({ state }) => state === 'problem'),
  };
}

/** The ids of conversations in the requests, each once. */
function conversationsIn(requests: readonly ServiceRequest[]): string[] {
  const ids = requests.map(({ url, body }) => {
    const inQuery = new URL(url, 'http://service').searchParams.get('custom_channel_id');
    return inQuery ?? /"customChannelId":"([^"]*)"/.exec(body)?.[1];
  });
  return [...new Set(ids.filter((id) => id !== undefined))];
}

afterAll(() => stopProcesses());

const ALL = { OPERATIONS: 'message,chat,files,metadata,sandbox' };
const LISTS = 'ok GET sandbox/:sandbox/fs/list: lists the files of a sandbox of this conversation';
const GONE = 'ok DELETE channel: the conversation of this check is gone';
const APART = 'ok a second user who knows the id of a conversation does not get';

const problemsIn = ({ problems }: CheckedOperations) =>
  problems.map(({ about, check, says }) => `${about ?? check}: ${says}`);
const openIn = ({ of }: CheckedOperations) =>
  of('users apart').flatMap((row) => /^problem .* gets (.*)$/.exec(row)?.[1] ?? []);

type Case = readonly [what: string, run: () => Promise<void>];
const cases: Case[] = [];
/** All cases mostly wait, so that they run side by side. */
function add(of: string, more: readonly Case[]): void {
  cases.push(...more.map(([what, run]): Case => [`${of} ${what}`, run]));
}
/** A case whose check finds exactly these problems, each as `operation: says`. */
const finds = (what: string, setup: Deployment, ...problems: RegExp[]): Case => [
  what,
  async () => {
    const checked = await checkOperations(setup);
    expect(problemsIn(checked)).toEqual(problems.map((one) => expect.stringMatching(one)));
    expect(checked.code).toBe(problems.length > 0 ? 1 : 0);
    for (const { advice } of checked.problems) expect(advice).toMatch(/./);
  },
];
/** A case whose bot service is another one. */
const service = (what: string, alter: Alter, ...problems: RegExp[]) =>
  finds(`a bot service ${what}`, { alter }, ...problems);
const failing = (line: string, status: number, json: unknown = {}) => answering(line, { status, json });

/** A bot service that wants the id of the conversation before the file, and the relay writes it behind. */
const wantsIdFirst: Alter = (request) =>
  isOf(request, 'POST blob') && request.body.indexOf('customChannelId') > request.body.indexOf('filename=')
    ? { status: 400, json: { code: 'ID_MUST_COME_FIRST' } }
    : request;

add('a deployment with all groups on', [
  [
    'has no problem, and nothing stays at the bot service',
    async () => {
      const checked = await checkOperations({ text: LONG_TEXT, more: ALL });
      expect(checked.problems).toEqual([]);
      expect([checked.code, checked.messages]).toEqual([0, 2]);
      expect(checked.progress).toMatch(/^Sending up to 2 messages/);
      expect(checked.of('operations')).toEqual(Array(5).fill('ok on'));
      expect(checked.operations).toEqual([
        'ok GET channel/metadata: the conversation of this check is there',
        'ok POST blob: an uploaded file comes back as it was',
        'ok GET metadata: nothing in it is named like a secret',
        LISTS,
        GONE,
      ]);
      expect(checked.of('users apart')).toEqual([
        `${APART} its run to stop, its metadata, its file, its sandbox`,
      ]);
      // That of the direct message, that of the first user, and what the second one may have begun.
      const deleted = checked.requests.filter((request) => isOf(request, 'DELETE channel'));
      expect(conversationsIn(deleted)).toHaveLength(3);
      expect(conversationsIn(deleted)).toEqual(
        expect.arrayContaining(conversationsIn(checked.requests.filter(({ method }) => method === 'POST'))),
      );
    },
  ],
  [
    'is proved as far as possible without a message, and the file begins a conversation',
    async () => {
      const checked = await checkOperations({ args: [...AS_BOTH, '--no-messages'], more: ALL });
      expect([checked.code, checked.messages, checked.progress]).toEqual([0, 0, '']);
      expect(checked.operations).toEqual([
        'note GET channel/metadata: not proved with a conversation that exists, since no message was answered',
        'ok POST blob: an uploaded file comes back as it was',
        'ok GET metadata: nothing in it is named like a secret',
        'note GET sandbox/:sandbox/fs/list: not proved: no sandbox is known that the conversation of this check has launched',
        GONE,
      ]);
      expect(checked.of('users apart')).toEqual([`${APART} its file`]);
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
      expect(checked.of('users apart')).toEqual([
        'note with CHANNELS=shared nobody owns a conversation: every user who knows its id can read and write it',
      ]);
    },
  ],
]);

add('groups that are off', [
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
  finds(
    'are a problem if the configuration says that they are on, and the other way',
    {
      ofRelay: { OPERATIONS: 'message,chat,metadata' },
      ofCheck: { OPERATIONS: 'message,chat,files' },
    },
    /^files: off at the running relay, and on in this configuration$/,
    /^metadata: on at the running relay, and off in this configuration$/,
  ),
  [
    'take no message if this is the group message',
    async () => {
      const checked = await checkOperations({ more: { OPERATIONS: 'chat' } });
      expect([checked.problems, checked.messages]).toEqual([[], 1]);
      expect(checked.of('operations').slice(0, 2)).toEqual(['ok off: answered with 501', 'ok on']);
    },
  ],
  finds(
    'at the running relay alone refuse the message, and the check goes on',
    { ofRelay: { OPERATIONS: 'chat' }, ofCheck: { OPERATIONS: 'message,chat' } },
    /^demo\/echo: answered with 501 operation_not_enabled$/,
    /^message: off at the running relay/,
  ),
]);

add('a problem is', [
  service(
    'that refuses the order of the form',
    wantsIdFirst,
    /^POST blob: answered with 400 .*MUST_COME_FIRST/,
  ),
  service(
    'that says where a file is, and does not have it',
    answering('POST blob', { status: 200, json: [{ blobId: 'b1', relativePath: 'uploads/a.txt' }] }),
    /^POST blob: the download of the uploaded file is answered with 404/,
  ),
  service(
    'that changes a file',
    (request) => ({ ...request, body: request.body.replace('A file of', 'a file of') }),
    /^POST blob: the file that comes back is not what was uploaded$/,
  ),
  service(
    'without an operation',
    failing('GET metadata', 500),
    /^GET metadata: answered with 502 upstream_bad_/,
  ),
  service(
    'that forgets a conversation after its message',
    failing('GET channel/metadata', 404),
    /^GET channel\/metadata: the bot service answers 404 for a conversation in which it has just answered/,
  ),
  service(
    'that only says that it deletes',
    answering('DELETE channel', { status: 204 }),
    /^DELETE channel: the conversation bot-relay-check-.* is still there/,
  ),
  service(
    'that cannot delete',
    failing('DELETE channel', 422, { no: 1 }),
    /^DELETE channel: .* 422 .*\{"no":1\}$/,
  ),
  finds(
    'a load balancer that hands only /generic/ to the relay',
    {
      answer: (req, res) =>
        /^\/ns\//.test(req.url ?? '') && !!res.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>'),
    },
    /^message: not proved: answered with 200 \(text\/html\)$/,
    /^DELETE channel: answered with 200 \(text\/html\)$/,
  ),
  finds(
    'a load balancer that refuses DELETE',
    { answer: (req, res) => req.method === 'DELETE' && !!res.writeHead(405).end() },
    /^DELETE channel: answered with 405 \(no type\)$/,
  ),
  finds(
    'a second user who cannot sign in',
    { ofCheck: { CHECK_OTHER_PASSWORD: 'not the right one' } },
    /^second user: answered with 401 invalid_credentials$/,
  ),
]);

add('a note is', [
  [
    'a bot service that does not say where a file is',
    async () => {
      const checked = await checkOperations({
        alter: failing('GET channel-home/download', 404),
      });
      expect([checked.code, checked.operations.filter((row) => row.includes('blob'))]).toEqual([
        0,
        [expect.stringMatching(/^note .*does not say where it keeps it$/)],
      ]);
    },
  ],
  [
    'a conversation that has launched no sandbox',
    async () => {
      const json = { customChannelId: 'x', launchedSandboxes: [] };
      const checked = await checkOperations({
        alter: answering('GET channel/metadata', { status: 200, json }),
        ...{ args: AS_USER, more: { OPERATIONS: 'message,chat,sandbox' } },
      });
      expect(checked.operations).toContain(
        'note GET sandbox/:sandbox/fs/list: not proved: no sandbox is known that the conversation of this check has launched',
      );
      expect(checked.requests.filter(({ url }) => url.includes('/sandbox/'))).toEqual([]);
    },
  ],
  [
    'a configuration of a bot that holds secrets, by their names alone',
    async () => {
      const json = {
        data: { llm: { apiKey: 'sk-not-to-be-shown' }, env: { DB_PASSWORD: 'x', secret: '****' } },
        ...{ maxTokens: '5', token: 7, title: 'How to reset a password' },
      };
      const checked = await checkOperations({
        alter: answering('GET metadata', { status: 200, json }),
      });
      expect(checked.operations).toContain(
        'note GET metadata: seems to hold secrets, which every user who is signed in can read: apiKey, DB_PASSWORD',
      );
      expect(JSON.stringify(checked.rows)).not.toContain('not-to-be-shown');
    },
  ],
  [
    'a question without an answer, and the others are asked all the same',
    async () => {
      const checked = await checkOperations({
        answer: (req) => !!req.url?.includes('request_id=') && !!req.socket.destroy(),
      });
      expect(checked.of('users apart')).toEqual([
        'note its run to stop not proved: answered with ECONNRESET',
        `${APART} its metadata, its file`,
      ]);
    },
  ],
  [
    'a run whose stop is refused only after it was over',
    async () => {
      const over = Promise.withResolvers<void>();
      const checked = await checkOperations({
        answer(req, res) {
          // The answer to the message goes through after the one without a session.
          const isMessage = req.headers.cookie && req.url?.startsWith('/generic/');
          if (isMessage) res.once('close', () => setTimeout(over.resolve, 300));
          if (!req.url?.includes('request_id=')) return false;
          const headers = { 'Content-Type': 'application/json', 'X-Request-Id': 'late' };
          void over.promise.then(() => res.writeHead(404, headers).end('{}'));
          return true;
        },
      });
      expect(checked.of('users apart')[0]).toBe(
        'note its run to stop not proved: answered with 404 after the run was over',
      );
    },
  ],
]);

const metadata = 'its metadata: 200 (application/json)';
const stop = 'its run to stop: 200 (application/json)';
const gets = (what: string, setup: Deployment, ...open: string[]): Case => [
  what,
  async () => {
    const checked = await checkOperations({ text: LONG_TEXT, ...setup });
    expect(openIn(checked)).toEqual(open);
    const [row] = checked.problems;
    if (open.length > 0)
      expect(row?.advice).toMatch(/^Stop using this deployment .*CHANNELS of the running relay/);
  },
];
const stopsById = (request: ServiceRequest) =>
  request.url.includes('request_id=') ? { status: 200, json: {} } : request;

add('what a second user gets is a problem, at', [
  gets(
    'a bot service that ignores the id of a conversation',
    { alter: withIds(() => 'the-only-one'), more: ALL },
    ...[stop, metadata, 'its file: 200 (text/plain)', 'its sandbox: 200 (application/json)'],
  ),
  gets('a bot service that stops a run by its id alone', { alter: stopsById }, stop),
  gets('no bot service that only takes ids without case', {
    alter: withIds((id) => id.toLowerCase()),
  }),
  gets(
    'a running relay with CHANNELS=shared, if the configuration says scoped',
    { ofRelay: { CHANNELS: 'shared' } },
    ...[stop, metadata, 'its file: 200 (text/plain)'],
  ),
]);

testSideBySide(cases, 8);

test('a second user needs a password of their own', async () => {
  const environment = checkEnvironment('http://127.0.0.1:9', { CHECK_PASSWORD: CANARY.password });
  const { code, progress } = await printCheck(['--through', 'http://127.0.0.1:9', ...AS_BOTH], environment);
  expect(code).toBe(64);
  expect(progress).toBe(
    'There is no terminal to ask for the password: set CHECK_OTHER_PASSWORD or give --other-password-file.\n',
  );
});
