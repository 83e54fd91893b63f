import { afterEach, describe, expect, test } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import type { Ask, Brain, Step } from '../../src/service/brains/steps.ts';
import { openDatabase } from '../../src/service/settings/database.ts';
import { channelTable } from '../../src/service/store/channel-table.ts';
import {
  type DemoService,
  demoEvents,
  startDemoService,
  wholeMessages,
} from '../harness/service/demo-service.ts';
import { SERVICE_SECRET, settingsFile } from '../harness/service/settings-file.ts';

const HELLO = { customChannelId: 'c1', text: 'hello' };
const NEVER = new Promise<never>(() => {});

let service: DemoService;
afterEach(() => service.close());

/** What the service has reported as its own faults. */
const faults: unknown[] = [];

/** Starts the service with the bot `demo/bot` that takes these steps. */
async function start(
  answer: (ask: Ask, signal: AbortSignal) => AsyncIterable<Step>,
  more: Partial<Brain> & { file?: ReturnType<typeof settingsFile> } = {},
) {
  const { file, ...own } = more;
  const brain = { isResumable: false, hasSandbox: false, metadata: {}, answer, ...own };
  const database = file && { path: file.path, secret: secret(SERVICE_SECRET) };
  faults.length = 0;
  const onFault = (fault: unknown) => faults.push(fault);
  service = await startDemoService({
    ...{ brains: { 'demo/bot': brain }, onFault },
    ...(database && { database }),
  });
}

const say = (text = 'hello') => service.say({ ...HELLO, text }, 'bot');
const history = async () =>
  demoEvents((await service.ask('GET message/sse?custom_channel_id=c1', { bot: 'bot' })).body);
const typesOf = (events: readonly { eventType: string }[]) =>
  events.map(({ eventType }) => eventType.replace('asgard.', ''));
const suspend = () => service.ask('POST message/suspend?custom_channel_id=c1', { bot: 'bot' });

describe('a run', () => {
  test('that its bot breaks has an error, is reported, and nothing half is kept', async () => {
    await start(async function* () {
      yield { startMessage: true };
      yield { say: 'half' };
      throw new Error('a secret');
    });
    const events = await say();
    expect(faults).toEqual([new Error('a secret')]);
    expect(events.at(-1)?.fact.runError?.error).toEqual({
      code: 'INTERNAL_ERROR',
      message: 'The bot service could not go on with this run.',
      inner: '',
      location: { namespace: 'demo', workflowName: 'bot', processorName: 'bot', processorType: 'MODEL' },
    });
    expect(typesOf(await history())).toEqual(['message.user', 'run.error']);
  });

  test('ends when it is suspended, whatever its bot does, and is told as stopped', async () => {
    await start(
      async function* () {
        yield { startMessage: true };
        yield { say: 'half' };
        yield { startTool: { toolsetName: 't', toolName: 'n', parameter: {} }, id: 'one' };
        await NEVER;
      },
      { stopped: (said) => [{ role: 'assistant', content: `${said}!` }] },
    );
    const client = service.watch(HELLO, 'bot');
    await client.waitFor('tool_call.start');
    await suspend();
    await client.closed;
    const events = await history();
    expect(typesOf(events)).toEqual(['message.user', 'message.complete', 'run.done']);
    expect(events[1]?.fact.messageComplete?.message).toMatchObject({ text: 'half', isStopped: true });
    expect(client.text()).toMatch(
      /tool_call\.complete\r?\n?data: .*"toolCallResult":\{"error":"interrupted"\}/,
    );
  });

  test('gives its bot what earlier runs remembered, each as one list', async () => {
    const asked: Ask['turns'][] = [];
    await start(
      async function* ({ turns, text }) {
        asked.push(turns);
        yield { remember: [{ user: text }] };
        yield { startMessage: true };
        yield { say: text };
        yield { completeMessage: true, remember: [{ bot: 1 }, { tool: 2 }] };
        yield { startMessage: true };
        yield { say: 'more' };
        if (text === 'stop') await NEVER;
      },
      { stopped: (said) => [{ stopped: said }] },
    );
    await say('one');
    const client = service.watch({ ...HELLO, text: 'stop' }, 'bot');
    await client.waitFor('"more"');
    await suspend();
    await client.closed;
    await say('three');
    const one = [{ user: 'one' }, { bot: 1 }, { tool: 2 }];
    expect(asked).toEqual([
      [],
      [one],
      [one, [{ user: 'stop' }, { bot: 1 }, { tool: 2 }, { stopped: 'more' }]],
    ]);
    await service.ask('POST channel/clear?custom_channel_id=c1', { bot: 'bot' });
    await say('four');
    expect(asked.at(-1)).toEqual([]);
  });

  test('writes nothing into a channel that was cleared meanwhile', async () => {
    await start(async function* ({ text, turns }) {
      yield { startMessage: true };
      yield { say: `${text} ${turns.length}` };
      if (text === 'first') await NEVER;
      yield { completeMessage: true, remember: [text] };
    });
    const client = service.watch({ ...HELLO, text: 'first' }, 'bot');
    await client.waitFor('first 0');
    await service.say({ ...HELLO, action: 'RESET_CHANNEL', text: 'second' }, 'bot');
    await client.closed;
    expect(client.text()).not.toMatch(/^id:/m);
    expect(wholeMessages(await say('third')).map(({ text }) => text)).toEqual(['third 1']);
    const events = await history();
    expect(wholeMessages(events).map(({ text }) => text)).toEqual(['second 0', 'third 1']);
    expect(events.map(({ id }) => id)).toEqual(['2', '3', '4', '5', undefined]);
  });

  test('that cannot be written ends with an error, and nothing of a step is kept by half', async () => {
    const file = settingsFile();
    await start(
      async function* () {
        yield { startMessage: true };
        yield { say: 'whole' };
        yield { completeMessage: true, remember: ['turn'] };
      },
      { file },
    );
    file
      .tables()
      .exec(
        "CREATE TRIGGER full BEFORE INSERT ON kept WHEN NEW.sequence = 2 BEGIN SELECT RAISE(ABORT, 'x'); END",
      );
    const events = await say();
    expect(typesOf(events).slice(-2)).toEqual(['message.delta', 'run.error']);
    const sql = file.tables();
    expect(sql.get('SELECT sequence, (SELECT count(*) FROM turns) AS turns FROM channels')).toEqual({
      sequence: 1,
      turns: 0,
    });
    await service.close();
    file.remove();
  });
});

describe('what is remembered of a conversation', () => {
  test('is bounded: the oldest goes, but for the first, unless that leaves no room for the newest', () => {
    const database = openDatabase();
    database.run("INSERT INTO projects (id, name, created_at) VALUES ('p', 'p', 0)");
    const bounds = { maxChannels: 9, maxFiles: 9, maxFileBytes: 9, maxTurnCharacters: 40, maxTurns: 5 };
    const channel = channelTable({ database, bounds }).findOrMake({ projectId: 'p', endpoint: 'a/b' }, 'c1');
    const add = (id: string, length: number) => {
      channel.runs.begin(id);
      channel.turns.write(id, [id.padEnd(length - 4)]);
    };
    const ids = () => channel.turns.all().map(([text]) => (text as string).trim());
    for (const id of ['a', 'b', 'c', 'd']) add(id, 10);
    expect(ids()).toEqual(['a', 'b', 'c', 'd']);
    add('e', 15);
    expect(ids()).toEqual(['a', 'd', 'e']);
    add('f', 35);
    expect(ids()).toEqual(['f']);
    add('g', 50);
    expect(ids()).toEqual([]);
    channel.turns.write('g', ['small']);
    channel.turns.write('no run', ['x']);
    expect(ids()).toEqual(['small']);
    for (let n = 0; n < 9; n += 1) add(`${n}`, 5);
    expect(ids()).toEqual(['small', '5', '6', '7', '8']);
    add('x', 5);
    expect(ids()).toEqual(['small', '6', '7', '8', 'x']);
    database.close();
  });
});
