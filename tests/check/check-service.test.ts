import type { Socket } from 'node:net';
import { afterAll, describe, expect, test } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import { startBotService } from '../../src/service/bot-service.ts';
import { checkEnvironment, expectRows, printCheck, problemsOf, runCheck } from '../harness/relay/check.ts';
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
/** No conversation is deleted, so that messages are all that the service gets. */
const MESSAGES_ONLY = { OPERATIONS: 'message' };

const closings: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closings) await close();
  await stopProcesses();
});

type AnswerRaw = (socket: Socket, request: RawRequest) => void;

async function raw(answer: AnswerRaw): Promise<RawUpstream> {
  const upstream = await startRawUpstream(answer);
  closings.push(upstream.close);
  return upstream;
}

async function checkRaw(answer: AnswerRaw, args: readonly string[] = [], more = {}) {
  return runCheck(args, checkEnvironment((await raw(answer)).url, { ...MESSAGES_ONLY, ...more }));
}

async function checkDemo(args: string[], more: Record<string, string> = {}) {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 60 } });
  closings.push(service.close);
  return runCheck(args, checkEnvironment(service.url, { BOTS: 'demo/echo', ...more }));
}

describe('a bot service', () => {
  test('without a problem accepts the key, and its answer arrives in time', async () => {
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
  });

  test('gets the text of --text, as a client sends it, in a new conversation', async () => {
    const bodies: object[] = [];
    const answer: AnswerRaw = (socket, { body }) => {
      bodies.push(JSON.parse(body.toString()));
      socket.write(wholeStream(...EVENTS));
    };
    expect((await checkRaw(answer, ['--text', 'Say so'])).messages).toBe(1);
    const [customChannelId, customMessageId] = [
      expect.stringMatching(/^bot-relay-check-/),
      expect.any(String),
    ];
    expect(bodies).toEqual([{ customChannelId, customMessageId, text: 'Say so', action: 'NONE' }]);
  });

  test('has no conversation of the check left, where the group chat is on', async () => {
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
  });

  test('gets no message with --no-messages', async () => {
    const upstream = await raw(() => {});
    const checked = await runCheck(['--no-messages'], checkEnvironment(upstream.url));
    expect([checked.code, checked.messages, upstream.requests]).toEqual([0, 0, []]);
    expectRows(checked, { key: ['note not tried: --no-messages'] });
  });

  test('gets no message for a pattern in BOTS, only for a bot that --bot names', async () => {
    const all = await checkDemo([], { BOTS: 'demo/*' });
    expect([all.code, all.messages]).toEqual([0, 0]);
    expectRows(all, { bot: [/^note stands for bots .* not tried$/] });
    const named = await checkDemo(['--bot', 'demo/echo'], { BOTS: 'demo/*' });
    expect(named.code).toBe(0);
    expectRows(named, { bot: [], key: ['ok works'] });
  });

  test('gets no message for a bot that BOTS does not allow', async () => {
    const { code, of, messages } = await checkDemo(['--bot', 'demo/guide']);
    expect([code, messages, of('bot')]).toEqual([1, 0, ['problem BOTS does not allow it']]);
  });

  test.each([
    ['http://127.0.0.1:9', '127.0.0.1:9', 'ECONNREFUSED'],
    ['http://no-such-host.invalid', 'no-such-host.invalid', '(ENOTFOUND|EAI_AGAIN)'],
  ])('that cannot be reached at %s is a problem, and no message is sent', async (url, about, cause) => {
    const { code, rows, of, messages } = await runCheck([], checkEnvironment(url));
    expect([code, messages, of('key')]).toEqual([1, 0, []]);
    const says = expect.stringMatching(`^no connection \\(${cause}\\)$`);
    expect(rows.at(-1)).toMatchObject({ state: 'problem', check: 'connection', about, says });
  });
});

describe('each key', () => {
  test('is tried, and reported by its fingerprint', async () => {
    const keys = `${CANARY.secondKey},${CANARY.key}`;
    const { code, rows, of, messages, progress } = await checkDemo([], { UPSTREAM_API_KEYS: keys });
    expect([code, messages, of('arrival').length]).toEqual([1, 3, 1]);
    expect(progress).toMatch(/^Sending up to 3 messages,/);
    expect(rows.filter(({ check }) => check === 'key').map(({ state, about }) => [state, about])).toEqual([
      ['problem', `demo/echo ${BAD}`],
      ['ok', `demo/echo ${GOOD}`],
    ]);
  });

  test('has its message aborted as soon as it is accepted, after one answer was read to its end', async () => {
    let calls = 0;
    const left = Promise.withResolvers<void>();
    const answer: AnswerRaw = (socket) => {
      calls++;
      if (calls === 1) return socket.write(wholeStream(...EVENTS));
      socket.once('close', left.resolve);
      return socket.write(STREAM_HEAD);
    };
    expectRows(await checkRaw(answer, [], TWO_KEYS), { key: ['ok works', 'ok works'] });
    await left.promise;
  });

  test('has to wait for its window, which the check leaves if it is too long', async () => {
    // One message in each window, since the check does not know what the relay sends.
    let calls = 0;
    const answer: AnswerRaw = (socket) => {
      calls++;
      socket.write(wholeStream(...EVENTS));
    };
    const checked = await checkRaw(answer, [], { ...TWO_KEYS, RATE_WINDOW_MS: '60000' });
    expectRows(checked, { key: ['ok works', 'problem the bot takes no more messages right now'] });
    expect(calls).toBe(1);
  });

  const json = ['Content-Type: application/json'];
  test.each<[string, string | Buffer, RegExp]>([
    ['is busy', plainAnswer('429 Busy', ['Retry-After: 1']), /takes no more messages/],
    ['redirects', plainAnswer('302 Found', ['Location: http://other.example/']), /something else .*: 302 /],
    ['answers HTML', plainAnswer('200 OK', ['Content-Type: text/html'], '<p>'), /: 200 \(text\/html\)/],
    ['does not know the bot', plainAnswer('404 No', json, '{"e":"NO"}'), /status 404: \{"e":"NO"\}$/],
    ['fails', plainAnswer('500 Oops', []), /something else .*: 500 /],
  ])('is a problem if the service %s', async (_what, answer, says) => {
    const { code, of, rows } = await checkRaw((socket) => void socket.write(answer));
    expect([code, of('key')]).toEqual([1, [expect.stringMatching(says)]]);
    expect(rows.find(({ check }) => check === 'key')?.advice).toMatch(/./);
  });

  test('is masked in an answer of the service, and control characters are not printed', async () => {
    const said = { [CANARY.key]: `\u001b]0;mine\u0007 ${CANARY.key}\u202e ${'x'.repeat(500)}` };
    const upstream = await raw((socket) => {
      socket.write(plainAnswer('400 Bad', json, JSON.stringify(said)));
    });
    const { text } = await printCheck([], checkEnvironment(upstream.url));
    expect(text).toContain('[secret]');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
    expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    expect(text).not.toContain('x'.repeat(200));
  });

  test('is masked in the error of a run', async () => {
    const error = { code: 'E\u001b[2J', message: `no ${CANARY.key} here` };
    const event = { eventType: 'asgard.run.error', fact: { runError: { error } } };
    const answer: AnswerRaw = (socket) =>
      void socket.write(wholeStream(`data: ${JSON.stringify(event)}\n\n`));
    expectRows(await checkRaw(answer), {
      answer: ['problem the run ended in an error: E?[2J: no [secret] here'],
    });
  });
});

describe('an answer', () => {
  const begins = Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]);
  const whole = (events: string) => wholeStream(events);
  test.each<[string, AnswerRaw, Record<string, RegExp[]>]>([
    [
      'that comes all at once after a wait is a problem',
      // In one chunk, so that no pause lies between its events.
      (socket) => void setTimeout(() => socket.write(whole(EVENTS.join('').repeat(2))), 1_100),
      { arrival: [/^problem .*all 4 events in one moment: .* buffers, or/] },
    ],
    [
      'that is too short tells nothing of its arrival',
      (socket) => void socket.write(whole(EVENTS.join(''))),
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
  ])('%s', async (_what, answer, rows) => {
    expectRows(await checkRaw(answer, [], { MAX_EXECUTION_MS: '5000' }), rows);
  });
});
