import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { fetchEventSource } from '@microsoft/fetch-event-source';
import { secret } from '../../src/secret.ts';
import type { Ask, Brain } from '../../src/service/brains/steps.ts';
import { openDatabase } from '../../src/service/settings/database.ts';
import type { Channel } from '../../src/service/store/channel.ts';
import { channelTable } from '../../src/service/store/channel-table.ts';
import { openRun } from '../../src/service/store/run.ts';
import {
  codeOf,
  type DemoEvent,
  type DemoService,
  demoEvents,
  errorOf,
  idsOf,
  played,
  startDemoService,
  textsOf,
  typesOf,
} from '../harness/service/demo-service.ts';
import { SERVICE_SECRET, settingsFile } from '../harness/service/settings-file.ts';

const HELLO = { customChannelId: 'c1', text: 'hello' };
const NEVER = new Promise<never>(() => {});

/** The parts of a browser that `fetch-event-source` needs. */
Object.assign(globalThis, {
  window: globalThis,
  document: { hidden: false, addEventListener: () => {}, removeEventListener: () => {} },
});

let service: DemoService;
let file: ReturnType<typeof settingsFile> | undefined;
afterEach(async () => {
  await service.close();
  file?.remove();
  file = undefined;
});

/** What the service has reported as its own faults. */
const faults: unknown[] = [];

/** Starts the service with the bot `demo/bot`, which takes these steps. */
async function start(answer: Brain['answer'], more: Partial<Brain> = {}) {
  faults.length = 0;
  const database = file && { path: file.path, secret: secret(SERVICE_SECRET) };
  const brains = { 'demo/bot': played(answer, more) };
  service = await startDemoService({ brains, database, onFault: (fault) => faults.push(fault) });
}
const say = (text = 'hello') => service.say({ ...HELLO, text }, 'bot');
const history = () => service.history({ bot: 'bot' });

describe('a run', () => {
  test('that its bot breaks has an error, is reported, and nothing half is kept', async () => {
    await start(async function* () {
      yield { startMessage: true };
      yield { say: 'half' };
      throw new Error('a secret');
    });
    const events = await say();
    expect(faults).toEqual([new Error('a secret')]);
    expect(errorOf(events)).toEqual({
      code: 'INTERNAL_ERROR',
      message: 'The bot service could not go on with this run.',
      inner: '',
      location: { namespace: 'demo', workflowName: 'bot', processorName: 'bot', processorType: 'MODEL' },
    });
    expect(typesOf(await history())).toEqual(['message.user', 'run.error']);
  });

  test('ends when it is suspended, whatever its bot does, and is told as stopped', async () => {
    await start(async function* () {
      yield { startMessage: true };
      yield { say: 'half' };
      yield { startTool: { toolsetName: 't', toolName: 'n', parameter: {} }, id: 'one' };
      await NEVER;
    });
    const client = service.watch(HELLO, 'bot');
    await client.waitFor('tool_call.start');
    await service.suspend('bot');
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
    await service.suspend('bot');
    await client.closed;
    await say('three');
    const one = [{ user: 'one' }, { bot: 1 }, { tool: 2 }];
    const two = [{ user: 'stop' }, { bot: 1 }, { tool: 2 }, { stopped: 'more' }];
    expect(asked).toEqual([[], [one], [one, two]]);
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
    expect(textsOf(await say('third'))).toEqual(['third 1']);
    const events = await history();
    expect(textsOf(events)).toEqual(['second 0', 'third 1']);
    expect(events.map(({ id }) => id)).toEqual(['2', '3', '4', '5', undefined]);
  });

  test('that cannot be written ends with an error, and nothing of a step is kept by half', async () => {
    file = settingsFile();
    await start(async function* () {
      yield { startMessage: true };
      yield { say: 'whole' };
      yield { completeMessage: true, remember: ['turn'] };
    });
    const sql = file.tables();
    sql.exec(
      "CREATE TRIGGER full BEFORE INSERT ON kept WHEN NEW.sequence = 2 BEGIN SELECT RAISE(ABORT, 'x'); END",
    );
    expect(typesOf(await say()).slice(-2)).toEqual(['message.delta', 'run.error']);
    const kept = sql.get('SELECT sequence, (SELECT count(*) FROM turns) AS turns FROM channels');
    expect(kept).toEqual({ sequence: 1, turns: 0 });
  });

  test('sends a later reader at most the last 1 MB, and cuts one that does not read', async () => {
    service = await startDemoService();
    const unread = () => new ServerResponse(new IncomingMessage(new Socket()));
    const MB = 1_048_576;
    const run = openRun('r', unread());
    for (let n = 0; n < 8; n++) run.send('x'.repeat(MB / 4), false);
    const late = unread();
    run.follow(late, () => {});
    expect(late.writableLength).toBeGreaterThan(MB / 2);
    expect(late.writableLength).toBeLessThan(1.1 * MB);
    run.send('kept', true);
    const later = unread();
    run.follow(later, () => {});
    expect(later.writableLength).toBe(0);
    for (let n = 0; n < 31; n++) run.send('x'.repeat(MB), true);
    expect(later.destroyed).toBe(false);
    for (let n = 0; n < 2; n++) run.send('x'.repeat(MB), true);
    expect(later.destroyed).toBe(true);
  });
});

test('what is remembered is bounded: the oldest goes, but for the first, unless that leaves no room for the newest; so are the runs', async () => {
  service = await startDemoService();
  const database = openDatabase();
  database.run("INSERT INTO projects (id, name, created_at) VALUES ('p', 'p', 0)");
  const bounds = { maxChannels: 9, maxFiles: 9, maxFileBytes: 9, maxTurnCharacters: 40, maxTurns: 5 };
  const { findOrMake } = channelTable({ database, bounds });
  const [channel, other] = ['c1', 'c2'].map((id) => findOrMake({ projectId: 'p', endpoint: 'a/b' }, id)) as [
    ...[Channel, Channel],
  ];
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
  for (let n = 0; n < 210; n += 1) {
    other.runs.begin(`run ${n}`);
    other.runs.end(`run ${n}`);
  }
  expect([0, 9, 10, 209].map((n) => other.runs.find(`run ${n}`) !== undefined)).toEqual([
    false,
    true,
    true,
    true,
  ]);
  database.close();
});

describe('a resumption', () => {
  const deltasOf = (events: readonly DemoEvent[]) =>
    events
      .map(({ fact }) => (fact.messageDelta?.message as { text: string } | undefined)?.text ?? '')
      .join('');
  const FIRST = 'This answer has two messages.';
  const SECOND = 'The second breaks off and goes on where it did.';
  /** Reads an answer of `demo/resume`, which breaks off; returns its text and the ids in it. */
  async function broken(message: object) {
    const client = service.watch(message, 'resume');
    await client.closed;
    const text = client.text();
    expect(text).not.toMatch(/run\.done| and"/);
    return { text, ids: [...text.matchAll(/^id: (.+)$/gm)].map(([, id]) => id as string) };
  }

  test('runs nothing, and sends the rest of its run, also when that is over', async () => {
    service = await startDemoService();
    const { text, ids } = await broken(HELLO);
    expect(ids).toEqual(['2']);
    const [, runId] = /"requestId":"([^"]+)"/.exec(text) ?? [];
    const resume = async (lastEventId: string) => service.send(HELLO, { bot: 'resume', lastEventId });
    const answer = await resume('2');
    const events = demoEvents(answer.body);
    expect(deltasOf(events)).toBe(SECOND);
    expect(new Set(events.map(({ requestId }) => requestId))).toEqual(new Set([runId]));
    expect(answer.headers['x-trace-id']).toBe(runId);
    expect(typesOf(demoEvents((await resume('2')).body))).toEqual(['message.complete', 'run.done']);
    expect(typesOf(demoEvents((await resume('3')).body))).toEqual(['run.done']);
    for (let n = 0; n < 8; n++) await service.say(HELLO, 'resume').catch(() => {});
    const [message, end, ...others] = demoEvents((await resume('2')).body);
    expect([message?.id, message?.requestId, end?.requestId, others]).toEqual(['3', runId, runId, []]);
    expect(idsOf(await service.history({ bot: 'resume' })).slice(0, 3)).toEqual(['1', '2', '3']);
  });

  test('of a message without a channel sends what came after the last message that was kept', async () => {
    service = await startDemoService();
    const { ids } = await broken({ text: 'a' });
    expect(ids).toEqual([expect.stringMatching(/^[0-9a-f-]{36}\.2$/)]);
    const [lastEventId = ''] = ids;
    const events = demoEvents((await service.send({ text: 'a' }, { lastEventId, bot: 'resume' })).body);
    expect(deltasOf(events)).toBe(SECOND);
    expect([typesOf(events)[0], typesOf(events).at(-1)]).toEqual(['message.start', 'run.done']);
    expect(idsOf(events)).toEqual([lastEventId.replace(/2$/, '3')]);
    expect((await service.send(HELLO, { lastEventId, bot: 'resume' })).status).toBe(404);
  });

  test('of nothing that is kept is refused, and nothing is run', async () => {
    service = await startDemoService();
    await service.say(HELLO);
    const uuid = '00000000-0000-4000-8000-000000000000';
    for (const lastEventId of ['3', '0', 'x', `${uuid}.1`, '1 2', '99999999999'])
      expect((await service.send(HELLO, { lastEventId })).status).toBe(404);
    expect((await service.send({ ...HELLO, customChannelId: 'c2' }, { lastEventId: '1' })).status).toBe(404);
    expect((await service.send({ text: 'a' }, { lastEventId: `${uuid}.1`, bot: 'resume' })).status).toBe(404);
    expect(idsOf(await service.history())).toEqual(['1', '2']);
  });

  test('of a run that has failed ends with its error', async () => {
    await start(async function* () {
      yield { startMessage: true };
      yield { say: 'one' };
      yield { completeMessage: true };
      yield { startMessage: true };
      yield { error: { code: 'FAILED', message: 'It failed.' } };
    });
    await say();
    const { body } = await service.send(HELLO, { bot: 'bot', lastEventId: '2' });
    expect(typesOf(demoEvents(body))).toEqual(['message.start', 'run.error']);
  });

  test('by fetch-event-source completes an answer that broke off', async () => {
    service = await startDemoService();
    const data: DemoEvent[] = [];
    const asked: (string | null)[] = [];
    await fetchEventSource(`${service.url.origin}${service.pathOf('message/sse', 'resume')}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-API-KEY': service.key },
      body: JSON.stringify(HELLO),
      openWhenHidden: true,
      fetch(input, init) {
        asked.push(new Headers(init?.headers).get('last-event-id'));
        return fetch(input, init);
      },
      onmessage: (message) => void data.push(JSON.parse(message.data) as DemoEvent),
      onerror: () => 1,
    });
    expect(asked).toEqual([null, '2']);
    expect(typesOf(data).at(-1)).toBe('run.done');
    // How much of the second message came before the break is left to the connection.
    expect(deltasOf(data)).toMatch(
      /^This answer has two messages\.(The second.*)?The second breaks off and goes on/,
    );
    expect(textsOf(data)).toEqual([FIRST, SECOND]);
  });
});

describe('the bot tools', () => {
  const ASK = { ...HELLO, text: 'What time is it?', action: 'NONE' };
  type Events = ReturnType<typeof demoEvents>;
  const consentIn = (events: Events) =>
    events.find(({ fact }) => fact.toolCallConsent)?.fact.toolCallConsent as
      | { processId: string; pendingCalls: { toolCallId: string }[] }
      | undefined;
  const consent = (toolCallConsents: unknown, customChannelId: string | null = 'c1') => ({
    ...{ customChannelId, action: 'RESPONSE_TOOL_CALL_CONSENT', toolCallConsents },
  });
  const ask = (more: object = {}) => service.say({ ...ASK, ...more }, 'tools');
  /** Asks the bot, and answers its question with `result`. */
  async function askAndAnswer(result: string) {
    const toolCallId = consentIn(await ask())?.pendingCalls[0]?.toolCallId;
    return service.say(consent([{ toolCallId, result }]), 'tools');
  }
  const isCalled = (events: Events) =>
    ['tool_call.start', 'tool_call.complete'].every((type) => typesOf(events).includes(type));
  const IT_IS = [expect.stringMatching(/^It is \d\d:\d\d in UTC\.$/)];

  test('asks before it calls its tool, again in the history until it is answered, and calls nothing if it is denied', async () => {
    service = await startDemoService();
    const events = await ask();
    expect(typesOf(events).slice(-3)).toEqual(['message.complete', 'tool_call.consent', 'run.done']);
    expect(isCalled(events)).toBe(false);
    const id = expect.stringMatching(/^[0-9a-f-]{36}$/);
    const call = {
      toolsetName: 'demo',
      toolName: 'clock',
      parameter: { zone: 'UTC' },
      alreadyAllowed: false,
    };
    expect(consentIn(events)).toEqual({ processId: id, pendingCalls: [{ toolCallId: id, ...call }] });
    const past = () => service.history({ bot: 'tools' });
    expect(consentIn(await past())).toEqual(consentIn(events));
    const [{ toolCallId } = {}] = consentIn(events)?.pendingCalls ?? [];
    const denied = await service.say(consent([{ toolCallId, result: 'DENY_ONCE' }]), 'tools');
    expect([textsOf(denied), isCalled(denied)]).toEqual([['Then I do not know.'], false]);
    expect(consentIn(await past())).toBeUndefined();
    expect(textsOf(await past())).toEqual(['May I look at the clock?', 'Then I do not know.']);
  });

  test('calls its tool once it is allowed: this time, for good in this channel, or by the query', async () => {
    service = await startDemoService();
    const events = await askAndAnswer('ALLOW_ONCE');
    expect([textsOf(events), isCalled(events)]).toEqual([IT_IS, true]);
    const complete = events.find(({ fact }) => fact.toolCallComplete);
    expect([complete?.id, complete?.fact.toolCallComplete]).toEqual([
      undefined,
      expect.objectContaining({
        ...{ callSeq: 0, toolCall: expect.objectContaining({ toolName: 'clock' }) },
        toolCallResult: { time: expect.stringMatching(/^\d\d:\d\d$/) },
      }),
    ]);
    const { body } = await service.send(ASK, { bot: 'tools', query: '?bypass_tool_call_consent=true' });
    expect(isCalled(demoEvents(body))).toBe(true);
    expect(consentIn(await ask())).toBeDefined();
    await askAndAnswer('ALLOW_ALWAYS');
    expect(isCalled(await ask())).toBe(true);
    expect(consentIn(await ask({ customChannelId: 'c2' }))).toBeDefined();
  });

  test('takes an answer to the call that waits, and to no other', async () => {
    service = await startDemoService();
    const refused = async (message: object) => {
      const answer = await service.send(message, { bot: 'tools' });
      return `${answer.status} ${codeOf(answer)}`;
    };
    const toolCallId = consentIn(await ask())?.pendingCalls[0]?.toolCallId;
    const allow = [{ toolCallId, result: 'ALLOW_ONCE' }];
    const none = '400 NO_CONSENT_PENDING';
    for (const message of [
      consent([{ toolCallId: 'x', result: 'ALLOW_ONCE' }]),
      ...[consent([]), consent(allow, 'c2'), consent(allow, null)],
    ])
      expect(await refused(message)).toBe(none);
    for (const wrong of ['x', [null], [{ toolCallId, result: 'YES' }], [{ result: 'ALLOW_ONCE' }]])
      expect(await refused(consent(wrong))).toBe('400 INVALID_MESSAGE');
    const other = await service.ask('GET channel/metadata?custom_channel_id=c2', { bot: 'tools' });
    expect(other.status).toBe(404);
    expect(textsOf(await service.say(consent(allow), 'tools'))).toEqual(IT_IS);
    expect(await refused(consent(allow))).toBe(none);
    // Another message instead of the answer: the call waits no more.
    const second = consentIn(await ask())?.pendingCalls[0]?.toolCallId;
    await ask({ text: '' });
    expect(await refused(consent([{ toolCallId: second, result: 'ALLOW_ONCE' }]))).toBe(none);
  });
});
