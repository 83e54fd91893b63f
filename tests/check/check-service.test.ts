import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { secret } from '../../src/secret.ts';
import { checkEnvironment, printCheck, runCheck } from '../support/check.ts';
import { plainAnswer } from '../support/pair.ts';
import { stopProcesses } from '../support/process.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../support/raw-upstream.ts';
import { CANARY } from '../support/relay.ts';

const [GOOD, BAD] = [secret(CANARY.key).fingerprint, secret(CANARY.secondKey).fingerprint];
const EVENTS = ['data: 1\n\n', 'data: 2\n\n', 'data: 3\n\n', 'data: 4\n\n'];
const DEMO = { BOTS: 'demo/echo' };

let upstream: RawUpstream | undefined;
let service: BotService | undefined;
afterEach(async () => {
  await upstream?.close();
  await service?.close();
  upstream = service = undefined;
  await stopProcesses();
});

async function checkRaw(
  answer: (socket: Socket, request: RawRequest) => void,
  args: string[] = [],
  more = {},
) {
  upstream = await startRawUpstream(answer);
  return runCheck(args, checkEnvironment(upstream.url, more));
}

async function checkDemo(args: string[], more: Record<string, string> = {}) {
  service = await startBotService({ keys: [CANARY.key], pace: { wordMs: 60 } });
  return runCheck(args, checkEnvironment(service.url, { ...DEMO, ...more }));
}

describe('a bot service that is as it should be', () => {
  test('has its key taken, and its answer arrives in time', async () => {
    const checked = await checkDemo([]);
    expect(checked.rows.filter(({ state }) => state === 'problem')).toEqual([]);
    expect([checked.code, checked.ok, checked.messages]).toEqual([0, true, 1]);
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
    expect(checked.progress).toMatch(/^Sending up to 1 message, each a run of a bot/);
  });

  test('is sent the text that was asked for, as a client sends it, in a conversation of its own', async () => {
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

  test('is sent nothing with --no-messages', async () => {
    const checked = await checkRaw(() => {}, ['--no-messages']);
    expect(upstream?.requests).toEqual([]);
    expect([checked.code, checked.messages]).toEqual([0, 0]);
    expect(checked.of('key')).toEqual(['note not tried: --no-messages']);
  });

  test('has no bot asked whose name only it knows, until it is named', async () => {
    const { code, of, messages } = await checkDemo([], { BOTS: 'demo/*' });
    expect([code, messages]).toEqual([0, 0]);
    expect(of('bot')).toEqual([expect.stringMatching(/^note stands for bots .* not tried$/)]);
    const named = await runCheck(
      ['--bot', 'demo/echo'],
      checkEnvironment(service?.url as URL, { BOTS: 'demo/*' }),
    );
    expect([named.code, named.of('bot'), named.of('key')]).toEqual([0, [], ['ok works']]);
  });

  test('has no bot asked that BOTS does not let through', async () => {
    const { code, of, messages } = await checkDemo(['--bot', 'demo/guide']);
    expect([code, messages, of('bot')]).toEqual([1, 0, ['problem BOTS does not let it through']]);
  });
});

describe('each key', () => {
  test('is tried, and named by its fingerprint', async () => {
    const keys = `${CANARY.secondKey},${CANARY.key}`;
    const { code, rows, messages } = await checkDemo([], { UPSTREAM_API_KEYS: keys });
    expect([code, messages]).toEqual([1, 2]);
    expect(rows.filter(({ check }) => check === 'key').map(({ state, about }) => [state, about])).toEqual([
      ['problem', `demo/echo ${BAD}`],
      ['ok', `demo/echo ${GOOD}`],
    ]);
    expect(rows.filter(({ check }) => check === 'arrival')).toHaveLength(1);
  });

  test('has its answer left as soon as it works, once an answer was read to its end', async () => {
    const times: number[] = [];
    let leave = () => {};
    const left = new Promise<void>((resolve) => {
      leave = resolve;
    });
    const { of } = await checkRaw(
      (socket) => {
        times.push(performance.now());
        if (times.length === 1) return socket.write(wholeStream(...EVENTS));
        socket.once('close', leave);
        return socket.write(STREAM_HEAD);
      },
      [],
      { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`, RATE_WINDOW_MS: '400' },
    );
    await left;
    expect(of('key')).toEqual(['ok works', 'ok works']);
    // One message in each window: what the relay itself sends is not known.
    expect((times[1] as number) - (times[0] as number)).toBeGreaterThan(350);
  });

  test('goes once more when the service asks to wait', async () => {
    let calls = 0;
    const { code, of, messages } = await checkRaw((socket) => {
      calls++;
      socket.write(calls === 1 ? plainAnswer('429 Busy', ['Retry-After: 1']) : wholeStream(...EVENTS));
    });
    expect([code, messages, of('key')]).toEqual([0, 2, ['ok works']]);
  });

  test.each<[string, string | Buffer, RegExp]>([
    ['is busy for good', plainAnswer('429 Busy', ['Retry-After: 1']), /takes no more messages/],
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
  ])('is a problem where the service %s', async (_what, answer, says) => {
    const { code, of, rows } = await checkRaw((socket) => void socket.write(answer));
    expect([code, of('key')]).toEqual([1, [expect.stringMatching(says)]]);
    expect(rows.find(({ check }) => check === 'key')?.advice).toMatch(/./);
  });

  test('is masked where the service says it, and what could steer the terminal is not printed', async () => {
    const json = JSON.stringify({
      [CANARY.key]: `\u001b]0;mine\u0007 ${CANARY.key}\u202e ${'x'.repeat(500)}`,
    });
    upstream = await startRawUpstream((socket) => {
      socket.write(plainAnswer('400 Bad', ['Content-Type: application/json'], json));
    });
    const { text } = await printCheck([], checkEnvironment(upstream.url));
    expect(text).toContain('[secret]');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
    expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    expect(text).not.toContain('x'.repeat(200));
  });

  test('is masked where it shows in the error of a run', async () => {
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
  test('all at once after a wait is a problem', async () => {
    const { code, of } = await checkRaw((socket) => {
      setTimeout(() => socket.write(wholeStream(...EVENTS)), 1_100);
    });
    expect(code).toBe(1);
    expect(of('arrival')).toEqual([
      expect.stringMatching(/^problem .*all 4 events in one moment: .* buffers, or/),
    ]);
  });

  test('all at once without a wait tells nothing', async () => {
    const { code, of } = await checkRaw((socket) => void socket.write(wholeStream(...EVENTS)));
    expect(code).toBe(0);
    expect(of('arrival')).toEqual([expect.stringMatching(/^note .*too quick or too little to tell/)]);
  });

  test('in blocks that end inside of events is a problem', async () => {
    const { code, of } = await checkRaw(async (socket) => {
      socket.write(STREAM_HEAD);
      const text = EVENTS.join('');
      for (let at = 0; at < text.length; at += 13) {
        socket.write(chunk(text.slice(at, at + 13)));
        await sleep(60);
      }
      socket.write(LAST_CHUNK);
    });
    expect(code).toBe(1);
    expect(of('arrival')).toEqual([expect.stringMatching(/^problem .*blocks that end inside of events/)]);
  });

  test('that breaks off is a problem', async () => {
    const { code, of } = await checkRaw((socket) => {
      socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
      setTimeout(() => socket.destroy(), 50);
    });
    expect([code, of('answer')]).toEqual([1, [expect.stringMatching(/^problem broke off after/)]]);
  });

  test('that takes longer than it may is a problem', async () => {
    const { code, of } = await checkRaw(
      (socket) => void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])),
      [],
      { MAX_EXECUTION_MS: '200' },
    );
    expect([code, of('answer')]).toEqual([
      1,
      [expect.stringMatching(/^problem broke off .*deadline_exceeded/)],
    ]);
  });
});

describe('a bot service that is not there', () => {
  test('is a problem, and nothing is sent', async () => {
    const { code, of, messages } = await runCheck([], checkEnvironment('http://127.0.0.1:9'));
    expect([code, messages, of('key')]).toEqual([1, 0, []]);
    expect(of('connection')).toEqual(['problem no connection (ECONNREFUSED)']);
  });

  test('is named when its name cannot be resolved', async () => {
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
