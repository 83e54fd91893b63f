import type { Socket } from 'node:net';
import { afterAll, describe, expect, test } from '@jest/globals';
import { startBotService } from '../../src/demo/bot-service.ts';
import { secret } from '../../src/secret.ts';
import { checkEnvironment, printCheck, runCheck } from '../harness/relay/check.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const [GOOD, BAD] = [secret(CANARY.key).fingerprint, secret(CANARY.secondKey).fingerprint];
/** Too few events to judge their arrival, so that a pause of this machine is no finding. */
const EVENTS = ['data: 1\n\n', 'data: 2\n\n'];
const DEMO = { BOTS: 'demo/echo' };
const TWO_KEYS = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };
const WITHOUT_RESUMPTION = [[], { RESUME_UPSTREAM: 'off' }] as const;

const closings: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closings) await close();
  await stopProcesses();
});

async function raw(answer: (socket: Socket, request: RawRequest) => void): Promise<RawUpstream> {
  const upstream = await startRawUpstream(answer);
  closings.push(upstream.close);
  return upstream;
}

async function checkRaw(
  answer: (socket: Socket, request: RawRequest) => void,
  args: readonly string[] = [],
  more = {},
) {
  return runCheck(args, checkEnvironment((await raw(answer)).url, more));
}

async function demoEnvironment(more: Record<string, string>) {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 60 } });
  closings.push(service.close);
  return checkEnvironment(service.url, { ...DEMO, ...more });
}

async function checkDemo(args: string[], more: Record<string, string> = {}) {
  return runCheck(args, await demoEnvironment(more));
}

describe('a bot service without a problem', () => {
  test.concurrent('accepts the key, and its answer arrives in time', async () => {
    const checked = await checkDemo([]);
    expect(checked.rows.filter(({ state }) => state === 'problem')).toEqual([]);
    expect([checked.code, checked.ok, checked.messages]).toEqual([0, true, 2]);
    expect(checked.of('resumption')).toEqual([
      'ok a stream goes on after its last id, and nothing runs again',
    ]);
    expect(checked.rows).toContainEqual(
      expect.objectContaining({ state: 'ok', check: 'key', about: `demo/echo ${GOOD}`, says: 'works' }),
    );
    expect(checked.of('arrival')).toEqual([
      expect.stringMatching(/^ok .*\d+ events at \d+ moments.*not buffered$/),
    ]);
    expect(checked.rows.find(({ check }) => check === 'arrival')?.measured).toEqual({
      headersMs: expect.any(Number),
      firstByteMs: expect.any(Number),
      endMs: expect.any(Number),
      events: 19,
      moments: expect.any(Number),
      spreadMs: expect.any(Number),
    });
    expect(checked.progress).toMatch(/^Sending up to 2 messages, each a run of a bot/);
  });

  test.concurrent('gets the text of --text, as a client sends it, in a new conversation', async () => {
    const bodies: string[] = [];
    const { messages } = await checkRaw(
      (socket, { body }) => {
        bodies.push(body.toString());
        socket.write(wholeStream(...EVENTS));
      },
      ['--text', 'Say so'],
    );
    expect(messages).toBe(1);
    expect(bodies.map((body) => JSON.parse(body))).toEqual([
      {
        customChannelId: expect.stringMatching(/^bot-relay-check-/),
        customMessageId: expect.any(String),
        text: 'Say so',
        action: 'NONE',
      },
    ]);
  });

  test.concurrent('gets no message with --no-messages', async () => {
    const upstream = await raw(() => {});
    const checked = await runCheck(['--no-messages'], checkEnvironment(upstream.url));
    expect(upstream.requests).toEqual([]);
    expect([checked.code, checked.messages]).toEqual([0, 0]);
    expect(checked.of('key')).toEqual(['note not tried: --no-messages']);
  });

  test.concurrent('gets no message for a pattern in BOTS, only for a bot that --bot names', async () => {
    const environment = await demoEnvironment({ BOTS: 'demo/*' });
    const { code, of, messages } = await runCheck([], environment);
    expect([code, messages]).toEqual([0, 0]);
    expect(of('bot')).toEqual([expect.stringMatching(/^note stands for bots .* not tried$/)]);
    const named = await runCheck(['--bot', 'demo/echo'], environment);
    expect([named.code, named.of('bot'), named.of('key')]).toEqual([0, [], ['ok works']]);
  });

  test.concurrent('gets no message for a bot that BOTS does not allow', async () => {
    const { code, of, messages } = await checkDemo(['--bot', 'demo/guide']);
    expect([code, messages, of('bot')]).toEqual([1, 0, ['problem BOTS does not allow it']]);
  });
});

describe('each key', () => {
  test.concurrent('is tried, and reported by its fingerprint', async () => {
    const keys = `${CANARY.secondKey},${CANARY.key}`;
    const { code, rows, messages, progress } = await checkDemo([], { UPSTREAM_API_KEYS: keys });
    expect([code, messages]).toEqual([1, 3]);
    expect(progress).toMatch(/^Sending up to 3 messages,/);
    expect(rows.filter(({ check }) => check === 'key').map(({ state, about }) => [state, about])).toEqual([
      ['problem', `demo/echo ${BAD}`],
      ['ok', `demo/echo ${GOOD}`],
    ]);
    expect(rows.filter(({ check }) => check === 'arrival')).toHaveLength(1);
  });

  test.concurrent('has its message aborted as soon as it is accepted, after one answer was read to its end', async () => {
    let calls = 0;
    const left = Promise.withResolvers<void>();
    const { of } = await checkRaw(
      (socket) => {
        calls++;
        if (calls === 1) return socket.write(wholeStream(...EVENTS));
        socket.once('close', left.resolve);
        return socket.write(STREAM_HEAD);
      },
      [],
      TWO_KEYS,
    );
    await left.promise;
    expect(of('key')).toEqual(['ok works', 'ok works']);
  });

  test.concurrent('has to wait for its window, which the check leaves if it is too long', async () => {
    // One message in each window, since the check does not know what the relay sends.
    const upstream = await raw((socket) => void socket.write(wholeStream(...EVENTS)));
    const { of } = await runCheck(
      [],
      checkEnvironment(upstream.url, { ...TWO_KEYS, RATE_WINDOW_MS: '60000' }),
    );
    expect(of('key')).toEqual(['ok works', 'problem the bot takes no more messages right now']);
    expect(upstream.requests).toHaveLength(1);
  });

  test.concurrent('is tried once more when the service asks to wait', async () => {
    let calls = 0;
    const { code, of, messages, progress } = await checkRaw(
      (socket) => {
        calls++;
        socket.write(calls === 1 ? plainAnswer('429 Busy', ['Retry-After: 1']) : wholeStream(...EVENTS));
      },
      ...WITHOUT_RESUMPTION,
    );
    // The service has refused it at first, so that it ran once.
    expect([code, calls, messages, of('key')]).toEqual([0, 2, 1, ['ok works']]);
    expect(progress).toMatch(/^Sending up to 1 message,/);
  });

  test.concurrent.each<[string, string | Buffer, RegExp]>([
    ['stays busy', plainAnswer('429 Busy', ['Retry-After: 1']), /takes no more messages/],
    [
      'redirects',
      plainAnswer('302 Found', ['Location: http://other.example/']),
      /something else than a stream \(status 302/,
    ],
    [
      'answers HTML',
      plainAnswer('200 OK', ['Content-Type: text/html'], '<p>'),
      /something else .*200, text\/html/,
    ],
    [
      'does not know the bot',
      plainAnswer('404 Not Found', ['Content-Type: application/json'], '{"e":"NO_BOT"}'),
      /status 404: \{"e":"NO_BOT"\}$/,
    ],
    ['fails', plainAnswer('500 Oops', []), /status 500/],
  ])('is a problem if the service %s', async (_what, answer, says) => {
    const { code, of, rows } = await checkRaw((socket) => void socket.write(answer));
    expect([code, of('key')]).toEqual([1, [expect.stringMatching(says)]]);
    expect(rows.find(({ check }) => check === 'key')?.advice).toMatch(/./);
  });

  test.concurrent('is masked in an answer of the service, and control characters are not printed', async () => {
    const json = JSON.stringify({
      [CANARY.key]: `\u001b]0;mine\u0007 ${CANARY.key}\u202e ${'x'.repeat(500)}`,
    });
    const upstream = await raw((socket) => {
      socket.write(plainAnswer('400 Bad', ['Content-Type: application/json'], json));
    });
    const { text } = await printCheck([], checkEnvironment(upstream.url));
    expect(text).toContain('[secret]');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
    expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    expect(text).not.toContain('x'.repeat(200));
  });

  test.concurrent('is masked in the error of a run', async () => {
    const error = { code: 'E\u001b[2J', message: `no ${CANARY.key} here` };
    const event = { eventType: 'asgard.run.error', fact: { runError: { error } } };
    const { code, of } = await checkRaw((socket) => {
      socket.write(wholeStream(`data: ${JSON.stringify(event)}\n\n`));
    });
    expect(code).toBe(1);
    expect(of('answer')).toEqual(['problem the run ended in an error: E?[2J: no [secret] here']);
  });
});

describe('the arrival of an answer', () => {
  test.concurrent('is a problem if it comes all at once after a wait', async () => {
    const { code, of } = await checkRaw((socket) => {
      // In one chunk, so that no pause lies between its events.
      setTimeout(() => socket.write(wholeStream(EVENTS.join('').repeat(2))), 1_100);
    });
    expect(code).toBe(1);
    expect(of('arrival')).toEqual([
      expect.stringMatching(/^problem .*all 4 events in one moment: .* buffers, or/),
    ]);
  });

  test.concurrent('tells nothing if it is too short', async () => {
    const { code, of } = await checkRaw((socket) => void socket.write(wholeStream(EVENTS.join(''))));
    expect(code).toBe(0);
    expect(of('arrival')).toEqual([expect.stringMatching(/^note .*too quick or too little to tell/)]);
  });

  test.concurrent('is a problem if it breaks off', async () => {
    const { code, of } = await checkRaw((socket) => {
      socket.end(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
    });
    expect([code, of('answer')]).toEqual([1, [expect.stringMatching(/^problem broke off after/)]]);
  });

  test.concurrent('is a problem if it takes longer than MAX_EXECUTION_MS', async () => {
    const { code, of } = await checkRaw(
      (socket) => void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])),
      [],
      { MAX_EXECUTION_MS: '5000' },
    );
    expect([code, of('answer')]).toEqual([
      1,
      [expect.stringMatching(/^problem broke off .*deadline_exceeded/)],
    ]);
  });
});

describe('a bot service that cannot be reached', () => {
  test.concurrent('is a problem, and no message is sent', async () => {
    const { code, of, messages } = await runCheck([], checkEnvironment('http://127.0.0.1:9'));
    expect([code, messages, of('key')]).toEqual([1, 0, []]);
    expect(of('connection')).toEqual(['problem no connection (ECONNREFUSED)']);
  });

  test.concurrent('is reported by its name if the name cannot be resolved', async () => {
    const { code, rows } = await runCheck([], checkEnvironment('http://no-such-host.invalid'));
    expect(code).toBe(1);
    expect(rows).toContainEqual(
      expect.objectContaining({
        state: 'problem',
        check: 'name',
        about: 'no-such-host.invalid',
        says: expect.stringMatching(/^cannot be resolved \((ENOTFOUND|EAI_AGAIN)\)$/),
      }),
    );
  });
});
