import { afterAll, describe, expect } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { inFrontOf, stopProcesses } from '../harness/relay/process.ts';
import { startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { plainAnswer } from '../harness/service/raw-upstream.ts';

const CONFIGURED = inFrontOf('http://127.0.0.1:9');

afterAll(async () => {
  await stopCommands();
  await stopProcesses();
});

/** What `channel-id` prints and exits with. */
const channelId = (args: readonly string[], environment: Record<string, string> = CONFIGURED) =>
  runCommand({ args: ['channel-id', ...args], environment });

/** The id that the bot service gets with a message of a user to the conversation `id`. */
async function sentId(id: string, environment: Record<string, string>): Promise<string> {
  const pair = await startRelayAndUpstream(
    (socket) => void socket.write(plainAnswer('400 No', [])),
    environment,
  );
  try {
    await call(pair.relay.port, '/ns/acme/bot-provider/helper/message/sse', {
      method: 'POST',
      headers: { Cookie: pair.cookie, 'Content-Type': 'application/json' },
      body: JSON.stringify({ customChannelId: id, text: 'hi' }),
    });
    return (JSON.parse(String(pair.upstream.requests[0]?.body)) as { customChannelId: string })
      .customChannelId;
  } finally {
    await pair.close();
  }
}

async function printsWhatIsSent(id: string, more: Record<string, string> = {}): Promise<void> {
  const sent = await sentId(id, more);
  expect(sent).toMatch(/^[0-9a-f]{64}$/);
  const args = ['--user', 'ada', `--id=${id}`];
  expect(await channelId(args, { ...CONFIGURED, ...more })).toEqual({
    code: 0,
    stdout: `${sent}\n`,
    stderr: '',
  });
}

async function refuses(environment: Record<string, string>, reason: RegExp): Promise<void> {
  expect(await channelId(['--user', 'ada', '--id', 'c1'], environment)).toEqual({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(reason),
  });
}

const { CHANNEL_SECRET: _left, ...withoutSecret } = CONFIGURED;

const WRONG_ARGUMENTS = [
  [],
  ['--user', 'ada'],
  ['--user', 'ada', '--id', ''],
  ['--user=', '--id', 'c1'],
  ['--user', 'ada', '--id', 'x'.repeat(257)],
  ['--user', 'ada', '--id', 'c1', 'more'],
  ['--user', 'ada', '--id', 'c1', '--realm', 'staff'],
];

describe('channel-id', () => {
  testSideBySide(
    [
      ['prints the id that a message carries to the bot service', () => printsWhatIsSent('my "öne"')],
      ['uses CHANNEL_REALM as the relay does', () => printsWhatIsSent('-c1', { CHANNEL_REALM: 'staff' })],
      [
        'says in one sentence that ids pass as they are with CHANNELS=shared, and exits 1',
        () => refuses({ ...CONFIGURED, CHANNELS: 'shared' }, /^CHANNELS is shared: [^.]* as they are\.\n$/),
      ],
      [
        'prints no id of a random secret, and exits 1',
        () => refuses(withoutSecret, /^CHANNEL_SECRET is not set: [^.]*\.\n$/),
      ],
      ...WRONG_ARGUMENTS.map((args): [string, () => Promise<void>] => [
        `prints its usage and exits 64 with ${JSON.stringify(args)}, whatever the configuration`,
        async () =>
          expect(await channelId(args, { PORT: 'none' })).toEqual({
            code: 64,
            stdout: '',
            stderr: expect.stringMatching(/^Usage: bot-relay channel-id /),
          }),
      ]),
      [
        'exits 78 with a wrong configuration',
        async () =>
          expect(await channelId(['--user', 'ada', '--id', 'c1'], { PORT: 'none' })).toMatchObject({
            code: 78,
            stdout: '',
          }),
      ],
    ],
    3,
  );
});
