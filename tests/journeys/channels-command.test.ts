import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { expectProblem } from '../support/call.ts';
import { runCommand, stopCommands } from '../support/commands.ts';
import { freePort } from '../support/free-port.ts';
import { type ChannelService, operate, type Sent, say, startChannelService } from '../support/owned.ts';
import { inFrontOf, startProcess, stopProcesses } from '../support/process.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { OTHER_USER, startRelay, type TestRelay } from '../support/relay.ts';
import { testSideBySide } from '../support/side-by-side.ts';

const HISTORY = 'POST message/suspend';

afterAll(async () => {
  await stopCommands();
  await stopProcesses();
  stopRedis();
});

/** What `channels` prints and exits with. */
const channels = (args: readonly string[], environment: Record<string, string>) =>
  runCommand({ args: ['channels', ...args], environment });

describeWithRedis('channels own and release', () => {
  let service: ChannelService;
  let redis: RedisServer;
  let environment: Record<string, string>;
  let relays: TestRelay[] = [];
  beforeAll(async () => {
    [service, redis] = await Promise.all([startChannelService(), startRedis()]);
    environment = { ...inFrontOf(service.url), REDIS_URL: redis.url, CHANNELS: 'owned' };
  });
  afterAll(async () => {
    await Promise.all(relays.map((relay) => relay.close()));
    await service.close();
  });

  test('brings the conversations of CHANNELS=shared along, on all instances', async () => {
    const shared = await startRelay(service.url, { CHANNELS: 'shared' });
    relays = [shared];
    await say({ port: shared.port, cookie: await shared.signIn() }, 'Old-1');
    const REDIS_URL = redis.url;
    relays.push(
      ...(await Promise.all([1, 2].map(() => startRelay(service.url, { CHANNELS: 'owned', REDIS_URL })))),
    );
    const [, one, two] = relays as [TestRelay, TestRelay, TestRelay];
    const ada: Sent = { port: one.port, cookie: await one.signIn() };
    const bob: Sent = { port: two.port, cookie: await two.signIn(OTHER_USER) };
    expectProblem(await say(ada, 'Old-1'), 403, 'not_your_conversation');

    const theirs = { code: 0, stdout: 'The conversation is that of ada now.\n', stderr: '' };
    const command = startProcess({ args: ['channels', 'own', 'ada', 'Old-1'], environment });
    // It ends by itself, so it has closed its connection to Redis.
    expect(await command.exited).toEqual({ code: 0, signal: null });
    expect(command.stdout() + command.stderr()).toBe(theirs.stdout);
    service.requests.length = 0;
    expect((await say(ada, 'Old-1')).status).toBe(200);
    expect((await operate({ ...ada, port: two.port }, HISTORY, 'Old-1')).status).toBe(200);
    expect(service.asked()).toEqual(['POST message/sse', HISTORY]);
    expectProblem(await say(bob, 'old-1'), 403, 'not_your_conversation');

    expect(await channels(['own', 'ada', 'Old-1'], environment)).toEqual(theirs);
    expect(await channels(['own', 'bob', 'old-1'], environment)).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(
        /^This conversation belongs to another user\. [^\n]*channels -- release ID\n$/,
      ),
    });
    expect((await say(ada, 'Old-1')).status).toBe(200);

    const free = { code: 0, stdout: 'The conversation belongs to nobody now.\n', stderr: '' };
    expect(await channels(['release', 'old-1'], environment)).toEqual(free);
    // The bot service has it, so nobody gets it by a message.
    for (const user of [ada, bob]) expectProblem(await say(user, 'Old-1'), 403, 'not_your_conversation');
    expect(await channels(['release', 'Old-1'], environment)).toEqual({
      ...{ code: 1, stdout: '', stderr: 'This conversation belongs to nobody.\n' },
    });
    expect((await channels(['own', 'bob', 'Old-1'], environment)).code).toBe(0);
    expect((await say(bob, 'Old-1')).status).toBe(200);
    expectProblem(await say(ada, 'Old-1'), 403, 'not_your_conversation');
  });
});

const CONFIGURED = inFrontOf('http://127.0.0.1:9');
const OWNED = { ...CONFIGURED, CHANNELS: 'owned' };

async function fails(environment: Record<string, string>, reason: RegExp, args = ['own', 'ada', 'c1']) {
  expect(await channels(args, environment)).toEqual({
    code: args[2] === 'c1' ? 1 : 64,
    stdout: '',
    stderr: expect.stringMatching(reason),
  });
}

const WRONG_ARGUMENTS = [
  [],
  ['own'],
  ['own', 'ada'],
  ['own', '', 'c1'],
  ['own', 'ada', ''],
  ['give', 'ada', 'c1'],
  ['release'],
  ['release', 'ada', 'c1'],
];

describe('channels', () => {
  testSideBySide(
    [
      [
        'says that nobody owns a conversation with CHANNELS=scoped',
        () => fails(CONFIGURED, /^CHANNELS is scoped: /),
      ],
      ['says that there is no Redis', () => fails(OWNED, /^REDIS_URL is not set: /)],
      [
        'says that Redis does not answer',
        async () =>
          fails(
            { ...OWNED, REDIS_URL: `redis://127.0.0.1:${await freePort()}` },
            /^Redis does not answer \(ECONNREFUSED\)\.\n$/,
          ),
      ],
      ...WRONG_ARGUMENTS.concat([['own', 'ada', 'c1', 'more']]).map((args): [string, () => Promise<void>] => [
        `prints its usage and exits 64 with ${JSON.stringify(args)}, whatever the configuration`,
        async () =>
          expect(await channels(args, { PORT: 'none' })).toEqual({
            code: 64,
            stdout: '',
            stderr: expect.stringMatching(/^Usage: npm run channels /),
          }),
      ]),
    ],
    3,
  );
});

describeWithRedis('channels own with an id that no conversation can have', () => {
  test('exits 64 and says why', async () => {
    const redis = await startRedis();
    await fails({ ...OWNED, REDIS_URL: redis.url }, /^The conversation's id must be [^\n]*\n$/, [
      'own',
      'ada',
      'a b',
    ]);
  });
});
