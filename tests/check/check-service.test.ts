import { PassThrough } from 'node:stream';
import tls from 'node:tls';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type CheckOptions, readArguments } from '../../src/check/check-arguments.ts';
import { CheckReport } from '../../src/check/report.ts';
import { visitorsOf } from '../../src/check/visitors.ts';
import { secret } from '../../src/secret.ts';
import { startBotService } from '../../src/service/bot-service.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type Identity, selfSigned, startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import {
  adviceOn,
  checkEnvironment,
  type ExpectedRows,
  expectRows,
  printCheck,
  problemsOf,
  runCheck,
} from '../harness/relay/check.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';
import {
  chunk,
  plainAnswer,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const [GOOD, BAD] = [secret(CANARY.key).fingerprint, secret(CANARY.secondKey).fingerprint];
/** Too few events to judge their arrival, so that a pause of this machine is no finding. */
const EVENTS = ['data: 1\n\n', 'data: 2\n\n'];
const TWO_KEYS = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };

const identities = {} as Record<'good' | 'soon' | 'expired' | 'other' | 'unknown', Identity>;
let trustedBefore: readonly string[];
beforeAll(() => {
  Object.assign(identities, {
    // OpenSSL finds certificates by their subject, so each has another one.
    good: selfSigned(90),
    soon: selfSigned(3, { subject: 'soon.test' }),
    expired: selfSigned(-1, { subject: 'expired.test' }),
    other: selfSigned(90, { names: 'DNS:other.test', subject: 'other.test' }),
    unknown: selfSigned(90, { subject: 'unknown.test' }),
  });
  const { good, soon, expired, other } = identities;
  trustedBefore = tls.getCACertificates('default');
  tls.setDefaultCACertificates([good, soon, expired, other].map(({ cert }) => cert));
});
const closings: (() => Promise<void>)[] = [];
afterAll(async () => {
  tls.setDefaultCACertificates(trustedBefore);
  for (const close of closings) await close();
  await stopProcesses();
});

type AnswerRaw = (socket: RawUpstream['sockets'][number], request: RawRequest) => void;
type Case = readonly [what: string, run: () => Promise<void>];
type Environment = Readonly<Record<string, string>>;

/** Starts a service, and returns how to check it: no conversation is deleted, so that it gets messages alone. */
async function raw(answer: AnswerRaw) {
  const upstream = await startRawUpstream(answer);
  closings.push(upstream.close);
  const check = (args: readonly string[] = [], more: Environment = {}) =>
    runCheck(args, checkEnvironment(upstream.url, { OPERATIONS: 'message', ...more }));
  return { upstream, check };
}
const whole =
  (text: string): AnswerRaw =>
  (socket) =>
    void socket.write(wholeStream(text));
const checkRaw = async (answer: AnswerRaw, args: readonly string[] = [], more: Environment = {}) =>
  (await raw(answer)).check(args, more);

async function checkDemo(args: string[], more: Environment = {}) {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 60 } });
  closings.push(service.close);
  return runCheck(args, checkEnvironment(service.url, { BOTS: 'demo/echo', ...more }));
}

const SERVICE: readonly Case[] = [
  [
    'a bot service without a problem accepts the key, and its answer arrives in time',
    async () => {
      const checked = await checkDemo([]);
      expect([checked.code, checked.ok, checked.messages, problemsOf(checked)]).toEqual([0, true, 2, []]);
      expect(checked.progress).toMatch(/^Sending up to 2 messages, each a run of a bot/);
      expectRows(checked, {
        key: ['ok works'],
        arrival: [/^ok .*\d+ events at \d+ moments.*not buffered$/],
        resumption: ['ok a stream goes on after its last id, and nothing runs again'],
      });
      expect(checked.rows.find(({ check }) => check === 'key')?.about).toBe(`demo/echo ${GOOD}`);
      expect(checked.rows.find(({ check }) => check === 'arrival')?.measured).toEqual({
        ...{ headersMs: expect.any(Number), firstByteMs: expect.any(Number), endMs: expect.any(Number) },
        ...{ events: 19, moments: expect.any(Number), spreadMs: expect.any(Number) },
      });
    },
  ],
  [
    'a bot service gets the text of --text, as a client sends it, in a new conversation',
    async () => {
      const { upstream, check } = await raw(whole(EVENTS.join('')));
      expect((await check(['--text', 'Say so'])).messages).toBe(1);
      expect(upstream.requests.map(({ body }) => JSON.parse(String(body)))).toEqual([
        {
          customChannelId: expect.stringMatching(/^bot-relay-check-/),
          ...{ customMessageId: expect.any(String), text: 'Say so', action: 'NONE' },
        },
      ]);
    },
  ],
  [
    'a bot service has no conversation of the check left, where the group chat is on',
    async () => {
      const ids: string[] = [];
      const answer: AnswerRaw = (socket, { requestLine, body }) => {
        const deletion = /^DELETE \/ns\/acme\/bot-provider\/helper\/channel\?custom_channel_id=(\S+) /;
        const [, deleted] = deletion.exec(requestLine) ?? [];
        ids.push(deleted ?? JSON.parse(body.toString()).customChannelId);
        socket.write(deleted ? plainAnswer('204 No Content', []) : wholeStream(...EVENTS));
      };
      const { messages } = await checkRaw(answer, [], { ...TWO_KEYS, OPERATIONS: 'message,chat' });
      const [one, two] = ids;
      expect([messages, ids]).toEqual([2, [one, two, one, two]]);
    },
  ],
  [
    'a bot service gets no message with --no-messages',
    async () => {
      const { upstream, check } = await raw(() => {});
      const checked = await check(['--no-messages']);
      expect([checked.code, checked.messages, upstream.requests]).toEqual([0, 0, []]);
      expectRows(checked, { key: ['note not tried: --no-messages'] });
    },
  ],
  [
    'a bot service gets no message for a pattern in BOTS, only for a bot that --bot names and BOTS allows',
    async () => {
      const all = await checkDemo([], { BOTS: 'demo/*' });
      expect([all.code, all.messages]).toEqual([0, 0]);
      expectRows(all, { bot: [/^note stands for bots .* not tried$/] });
      const named = await checkDemo(['--bot', 'demo/echo', '--text', 'Hi'], { BOTS: 'demo/*' });
      expect(named.code).toBe(0);
      expectRows(named, { bot: [], key: ['ok works'] });
      const { code, of, messages } = await checkDemo(['--bot', 'demo/guide']);
      expect([code, messages, of('bot')]).toEqual([1, 0, ['problem BOTS does not allow it']]);
    },
  ],
  ...[
    ['http://127.0.0.1:9', '127.0.0.1:9', 'ECONNREFUSED'],
    ['http://no-such-host.invalid', 'no-such-host.invalid', '(ENOTFOUND|EAI_AGAIN)'],
  ].map(
    ([url = '', about = '', cause]): Case => [
      `a bot service that cannot be reached at ${url} is a problem, and no message is sent`,
      async () => {
        const { code, rows, of, messages } = await runCheck([], checkEnvironment(url));
        expect([code, messages, of('key')]).toEqual([1, 0, []]);
        const says = expect.stringMatching(`^no connection \\(${cause}\\)$`);
        expect(rows.at(-1)).toMatchObject({ state: 'problem', check: 'connection', about, says });
      },
    ],
  ),
];

const json = ['Content-Type: application/json'];
const REFUSING: readonly (readonly [what: string, answer: string, says: RegExp])[] = [
  ['is busy', plainAnswer('429 Busy', ['Retry-After: 1']), /takes no more messages/],
  ['redirects', plainAnswer('302 Found', ['Location: http://other.example/']), /something else .*: 302 /],
  ['answers HTML', plainAnswer('200 OK', ['Content-Type: text/html'], '<p>'), /: 200 \(text\/html\)/],
  ['does not know the bot', plainAnswer('404 No', json, '{"e":"NO"}'), /status 404: \{"e":"NO"\}$/],
  ['fails', plainAnswer('500 Oops', []), /something else .*: 500 /],
];
const KEYS: readonly Case[] = [
  [
    'each key is tried, and reported by its fingerprint',
    async () => {
      const keys = `${CANARY.secondKey},${CANARY.key}`;
      const { code, rows, of, messages, progress } = await checkDemo([], { UPSTREAM_API_KEYS: keys });
      expect([code, messages, of('arrival').length]).toEqual([1, 3, 1]);
      expect(progress).toMatch(/^Sending up to 3 messages,/);
      expect(rows.filter(({ check }) => check === 'key').map(({ state, about }) => [state, about])).toEqual([
        ['problem', `demo/echo ${BAD}`],
        ['ok', `demo/echo ${GOOD}`],
      ]);
    },
  ],
  [
    'each key has its message aborted as soon as it is accepted, after one answer was read to its end',
    async () => {
      let calls = 0;
      const left = Promise.withResolvers<void>();
      const answer: AnswerRaw = (socket) => {
        calls++;
        if (calls === 1) return void socket.write(wholeStream(...EVENTS));
        socket.once('close', () => left.resolve());
        socket.write(STREAM_HEAD);
      };
      expectRows(await checkRaw(answer, [], TWO_KEYS), { key: ['ok works', 'ok works'] });
      await left.promise;
    },
  ],
  [
    'each key has to wait for its window, which the check leaves if it is too long',
    async () => {
      // One message in each window, since the check does not know what the relay sends.
      const { upstream, check } = await raw(whole(EVENTS.join('')));
      const checked = await check([], { ...TWO_KEYS, RATE_WINDOW_MS: '60000' });
      expectRows(checked, { key: ['ok works', 'problem the bot takes no more messages right now'] });
      expect(upstream.requests).toHaveLength(1);
    },
  ],
  ...REFUSING.map(
    ([what, answer, says]): Case => [
      `a key is a problem if the service ${what}`,
      async () => {
        const { code, of, rows } = await checkRaw((socket) => void socket.write(answer));
        expect([code, of('key')]).toEqual([1, [expect.stringMatching(says)]]);
        expect(rows.find(({ check }) => check === 'key')?.advice).toMatch(/./);
      },
    ],
  ),
  [
    'a key is masked in an answer of the service, and control characters are not printed',
    async () => {
      const said = { [CANARY.key]: `\u001b]0;mine\u0007 ${CANARY.key}\u202e ${'x'.repeat(500)}` };
      const { upstream } = await raw((socket) => {
        socket.write(plainAnswer('400 Bad', json, JSON.stringify(said)));
      });
      const { text } = await printCheck([], checkEnvironment(upstream.url));
      expect(text).toContain('[secret]');
      // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
      expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
      expect(text).not.toContain('x'.repeat(200));
    },
  ],
  [
    'a key is masked in the error of a run',
    async () => {
      const error = { code: 'E\u001b[2J', message: `no ${CANARY.key} here` };
      const event = { eventType: 'asgard.run.error', fact: { runError: { error } } };
      expectRows(await checkRaw(whole(`data: ${JSON.stringify(event)}\n\n`)), {
        answer: ['problem the run ended in an error: E?[2J: no [secret] here'],
      });
    },
  ],
];

const begins = Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]);
const ANSWERS = (
  [
    [
      'that comes all at once after a wait is a problem',
      // In one chunk, so that no pause lies between its events.
      (socket) => void setTimeout(() => socket.write(wholeStream(EVENTS.join('').repeat(2))), 1_100),
      { arrival: [/^problem .*all 4 events in one moment: .* buffers, or/] },
    ],
    [
      'that is too short tells nothing of its arrival',
      whole(EVENTS.join('')),
      { arrival: [/^note .*too quick or too little to tell/], answer: [/^ok whole/] },
    ],
    [
      'that breaks off is a problem',
      (socket) => void socket.end(begins),
      { answer: [/^problem broke off after/] },
    ],
    [
      'that takes longer than MAX_EXECUTION_MS is a problem',
      (socket) => void socket.write(begins),
      { answer: [/^problem broke off after [\d.]+ s \(ETIMEDOUT\)/] },
    ],
  ] satisfies [string, AnswerRaw, ExpectedRows][]
).map(
  ([what, answer, rows]): Case => [
    `an answer ${what}`,
    async () => expectRows(await checkRaw(answer, [], { MAX_EXECUTION_MS: '5000' }), rows),
  ],
);

const event = (eventType: string, requestId: string, id = '') =>
  `${id}data: ${JSON.stringify({ eventType, requestId })}\n\n`;
const run = (requestId: string, id = '') =>
  event('asgard.run.init', requestId, id) + event('asgard.run.done', requestId);
/** Checks a service that answers each message with a run, and a resumption with `resume`. */
async function checkResuming(resume: AnswerRaw, more: Environment = {}, id = 'id: né-1\n') {
  let runs = 0;
  const { upstream, check } = await raw((socket, request) => {
    if (request.all('last-event-id').length > 0) resume(socket, request);
    else socket.write(wholeStream(run(`run-${++runs}`, id)));
  });
  return { ...(await check([], more)), requests: upstream.requests };
}
const CLOSED = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\n';
const RESUMPTION: readonly Case[] = [
  [
    'a stream that goes on after its last id is fine',
    async () => {
      const checked = await checkResuming(whole(event('asgard.run.done', 'run-2')));
      expect(checked.of('resumption')).toEqual([
        'ok a stream goes on after its last id, and nothing runs again',
      ]);
      expect(checked.code).toBe(0);
      const [, second, last] = checked.requests as [RawRequest, RawRequest, RawRequest];
      expect(last.body).toEqual(second.body);
      expect(Buffer.from(String(last.all('last-event-id')), 'latin1').toString()).toBe('né-1');
      expect([checked.messages, checked.requests.length]).toEqual([2, 3]);
    },
  ],
  [
    'a stream that repeats the beginning of the same run is fine; another run is a problem',
    async () => {
      const same = await checkResuming(whole(run('run-2')));
      expect(same.of('resumption')).toEqual([expect.stringMatching(/^ok /)]);
      const again = await checkResuming(whole(run('run-3')));
      expect(again.of('resumption')).toEqual([
        'problem the bot service runs the message again instead of resuming its stream',
      ]);
      expect(again.code).toBe(1);
      expect(adviceOn(again, 'resumption')).toContain('RESUME_UPSTREAM=off');
    },
  ],
  ...(
    [
      ['ends at once', whole('')],
      ['is closed', (socket) => void socket.end(CLOSED)],
      ['is answered with 404', (socket) => void socket.write(plainAnswer('404 No', []))],
      ['is answered with 204', (socket) => void socket.write(plainAnswer('204 No Content', []))],
    ] satisfies [string, AnswerRaw][]
  ).map(
    ([what, resume]): Case => [
      `a resumption that ${what} is only noted`,
      async () => {
        const checked = await checkResuming(resume);
        expect(checked.of('resumption')).toEqual([expect.stringMatching(/^note /)]);
        expect(checked.code).toBe(0);
      },
    ],
  ),
  [
    'without ids, or with RESUME_UPSTREAM=off, nothing more is sent',
    async () => {
      const idless = await checkResuming(whole(''), {}, '');
      expect(idless.of('resumption')).toEqual([
        expect.stringMatching(/^note not tried: the answer carries no id/),
      ]);
      expect([idless.messages, idless.requests.length]).toEqual([1, 1]);
      const off = await checkResuming(whole(''), { RESUME_UPSTREAM: 'off' });
      expect([off.of('resumption'), off.messages, off.requests.length]).toEqual([[], 1, 1]);
    },
  ],
];

/** Checks a service behind TLS with this certificate. */
async function checkTls(name: keyof typeof identities) {
  const { upstream } = await raw(whole('data: 1\n\n'));
  const front = await startFakeLoadBalancer({ identity: identities[name] });
  closings.push(front.close);
  front.forwardTo(upstream.port);
  const checked = await runCheck([], checkEnvironment(front.url));
  return { ...checked, requests: upstream.requests, row: checked.rows.find(({ check }) => check === 'TLS') };
}
const CERTIFICATES: readonly Case[] = [
  [
    'a certificate that is valid is reported with its expiry',
    async () => {
      const { code, row, of } = await checkTls('good');
      expect(code).toBe(0);
      expect(row).toMatchObject({
        state: 'ok',
        says: expect.stringMatching(
          /^connected to 127\.0\.0\.1 .*valid until \d{4}-\d\d-\d\d \((89|90) days\)$/,
        ),
        measured: { certificateDaysLeft: expect.closeTo(90, 0) },
      });
      expect(of('key')).toEqual(['ok works']);
    },
  ],
  [
    'a certificate is a note if it expires soon',
    async () => {
      const { code, row } = await checkTls('soon');
      expect([code, row?.state, row?.advice]).toEqual([0, 'note', expect.stringMatching(/runs out soon/)]);
    },
  ],
  ...(
    [
      [
        'expired',
        /\(CERT_HAS_EXPIRED\); certificate of expired\.test by expired\.test, ran out on \d{4}/,
        /renewed/,
      ],
      ['other', /\(ERR_TLS_CERT_ALTNAME_INVALID\)/, /other names/],
      [
        'unknown',
        /\(DEPTH_ZERO_SELF_SIGNED_CERT\); certificate of unknown\.test/,
        /^(?!.*REJECT_UNAUTHORIZED).*NODE_EXTRA_CA_CERTS/,
      ],
    ] as const
  ).map(
    ([name, says, advice]): Case => [
      `a certificate is a problem if it is ${name}, and no key is sent`,
      async () => {
        const { code, row, messages, requests } = await checkTls(name);
        expect([code, messages, requests]).toEqual([1, 0, []]);
        expect(row).toMatchObject({
          state: 'problem',
          says: expect.stringMatching(says),
          advice: expect.stringMatching(advice),
        });
      },
    ],
  ),
];

// Most of them wait: for a window, for a stream, for the next message.
testSideBySide([...SERVICE, ...KEYS, ...ANSWERS, ...RESUMPTION, ...CERTIFICATES], 8);

const SIGN_IN = ['--through', 'http://127.0.0.1:9', '--user', 'ada'];
const OTHER_SIGN_IN = [...SIGN_IN, '--other-user', 'bob', '--other-password-file', 'file'];

test.each([
  [[CANARY.password]],
  [['--password', CANARY.password]],
  [['--text']],
  [['--through', 'chat.example.com']],
  [['--through', 'https://chat.example.com/path']],
  [['--through', 'https://ada:word@chat.example.com']],
  [['--user', 'ada']],
  [['--through', 'https://chat.example.com', '--password-file', 'p']],
  [['--bot', 'acme/*']],
  [['--bot', 'helper']],
  [SIGN_IN],
  [[...SIGN_IN, '--password-file', '/no/such/file']],
  [['--through', 'https://chat.example.com', '--other-user', 'bob']],
  [[...SIGN_IN, '--other-user', 'ada']],
  [[...SIGN_IN, '--other-password-file', 'file']],
])('wrong arguments exit with 64 and an explanation, and no argument is printed: %#', async (args) => {
  const { code, text, progress } = await printCheck(args, checkEnvironment('http://127.0.0.1:9'));
  expect([code, text]).toEqual([64, '']);
  expect(progress).toMatch(/./);
});

test('the arguments are read, and a bot that is named twice is used once', () => {
  const args = ['--bot', 'a/b', '--bot', 'a/b', '--text', 'Hi', '--json', '--no-messages', ...OTHER_SIGN_IN];
  expect(readArguments(args)).toEqual({
    ...{ json: true, messages: false, text: 'Hi', bots: ['a/b'] },
    through: new URL('http://127.0.0.1:9'),
    users: [
      { name: 'ada', variable: 'CHECK_PASSWORD', option: '--password-file', file: undefined },
      { name: 'bob', variable: 'CHECK_OTHER_PASSWORD', option: '--other-password-file', file: 'file' },
    ],
  });
});

test('the password is asked for at the terminal, which does not show it, and is masked unless it is very short', async () => {
  const output = new PassThrough();
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => {} });
  const report = new CheckReport();
  const { users } = readArguments(SIGN_IN) as CheckOptions;
  const asked = visitorsOf('password', users, { environment: {}, terminal: { input, output }, report });
  input.write(`${CANARY.password}\r`);
  const { visitor } = await asked;
  expect(visitor).not.toBe('guest');
  expect(visitor !== 'guest' && visitor?.password.open()).toBe(CANARY.password);
  expect(String(output.read())).toBe('Password of ada: \n');
  expect(report.quote(CANARY.password)).toBe('[secret]');
  const terminal = { input: new PassThrough(), output: new PassThrough() };
  await visitorsOf('password', users, { environment: { CHECK_PASSWORD: 'demo' }, terminal, report });
  // Other words may contain it.
  expect(report.quote('demo')).toBe('demo');
});
