import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import {
  type AnswerView,
  type FollowedHistory,
  followHistory,
} from '../../src/client/channel/follow-history.ts';
import { resumedAnswers } from '../../src/client/channel/resumed-answers.ts';
import type { BotEvent } from '../../src/client/session/bot-client.ts';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { openTalk } from '../harness/clients/channels.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';
import { CANARY, startRelay, type TestRelay } from '../harness/relay/relay.ts';

const WORDS = 'word '.repeat(100).trim();

describe('an answer of a channel that had not ended before a reload', () => {
  let service: BotService;
  let relay: TestRelay;
  beforeAll(async () => {
    service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 20 }, limit: 1000 });
    const environment = { BOTS: 'demo/*', OPERATIONS: 'message,chat', JOIN: 'on', JOIN_GRACE_MS: '600000' };
    relay = await startRelay(service.url, environment);
  });
  afterAll(async () => {
    for (const { leave, signOut } of pages.splice(0)) {
      leave();
      // A page that is left follows a run until its end.
      await signOut();
    }
    await relay.close();
    await service.close();
  });

  const pages: Pick<Awaited<ReturnType<typeof openTalk>>, 'leave' | 'signOut'>[] = [];
  /** A page that shows the conversation; its tab has kept these names of messages. */
  async function open(customChannelId: string, names: Iterable<readonly [string, string]> = []) {
    const { kept, store } = memoryStore();
    for (const [key, value] of names) kept.set(key, value);
    const client = testClient({
      ...{ baseUrl: relay.url, namespace: 'demo', botProviderName: 'echo', ids: store },
    });
    const page = await openTalk(client, { id: customChannelId });
    pages.push(page);
    return { ...page, kept, conversation: botConversation(client, customChannelId) };
  }
  /** A page whose answer has begun. */
  async function begun(customChannelId: string, words = WORDS) {
    const page = await open(customChannelId);
    void page.send(words);
    await until(() => page.shown()[1]?.startsWith('bot streaming: You said: word') === true);
    return page;
  }
  const joined = () => relay.logs.filter(({ msg }) => msg === 'run joined').length;
  const sent = () =>
    relay.logs.filter(
      ({ msg, method, route }) => msg === 'request' && method === 'POST' && /sse$/.test(`${route}`),
    );

  test('goes on below its question, and each is shown once', async () => {
    const before = joined();
    const { kept, shown: first } = await begun('one');
    const { shown } = await open('one', kept);
    await until(() => shown().some((one) => one.startsWith('bot done')));
    await until(() => shown().length > 1);
    expect(shown()).toEqual([`user done: ${WORDS}`, `bot done: You said: ${WORDS}`]);
    expect(joined()).toBe(before + 1);
    await until(() => first()[1]?.startsWith('bot done') === true);
    await until(() => sent().length > 0);
    expect(sent()).toHaveLength(1);
  });

  test('is stopped with its run', async () => {
    // It must go on until the second page has signed in.
    const { kept } = await begun('two', 'word '.repeat(1_000));
    const { shown, stop, snapshot, conversation } = await open('two', kept);
    await until(() => snapshot().status === 'streaming');
    stop();
    await until(() => shown().some((one) => one.startsWith('bot stopped')));
    while ((await conversation.metadata())?.runState !== 'IDLE');
    expect(snapshot().error).toBeUndefined();
  });

  test('is no error, and nothing is sent, if the relay has no such run', async () => {
    const { kept } = await begun('three');
    const names = [...kept].map(
      ([key, value]) => [key, value.replace(/"[\d-]+"\]\]$/, '"1-2-3"]]')] as const,
    );
    expect(names).not.toEqual([...kept]);
    const { shown, snapshot, kept: left } = await open('three', names);
    await until(() => left.size === 0);
    await until(() => shown().length > 1);
    expect(snapshot().error).toBeUndefined();
  });
});

describe('an answer that is resumed', () => {
  async function* noText(): AsyncGenerator<string> {}
  /** One answer, whose events belong to `run`, at a page whose history shows the runs in `shows`. */
  async function resumed(run: string | undefined, shows: readonly unknown[] | undefined) {
    const events: string[] = [];
    async function* stream(): AsyncGenerator<BotEvent> {
      try {
        const event = { known: false, eventType: 'word', runId: run, id: undefined, raw: undefined } as const;
        yield* [event, event];
      } finally {
        events.push('closed');
      }
    }
    const view: AnswerView = {
      onEvent: () => events.push('event'),
      onState: (state) => events.push(state),
      onVerdict: () => {},
      onError: (error) => events.push(String(error)),
    };
    const info = { state: 'waiting' as const, requestId: undefined, text: noText() };
    const answer = Object.assign(stream(), info);
    const conversation = { resume: () => [answer] };
    const history = shows && ({ shows: (one) => shows.includes(one) } as Partial<FollowedHistory>);
    const { begun } = resumedAnswers(conversation, {
      onAnswer: () => view,
      onError: (error) => events.push(String(error)),
      history: () => history as FollowedHistory | undefined,
    });
    await begun;
    await until(() => events.includes('closed'));
    return events;
  }
  const WHOLE = ['streaming', 'event', 'event', 'closed', 'done'];

  test.each([
    ['is shown if no history is', undefined, undefined, WHOLE],
    ['is shown if its history does not show it', 'A', ['B'], WHOLE],
    ['is left to a history that shows its run already', 'A', ['A'], ['closed']],
    ['is left to the history if it names no run', undefined, [], ['closed']],
  ])('%s', async (_, run, shows, expected) => {
    const events = await resumed(run, shows);
    await until(() => events.length === expected.length);
    expect(events).toEqual(expected);
  });
});

const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;

test('a history is asked for when it is known which runs are resumed, and leaves no timer', async () => {
  const before = timers();
  let asked = 0;
  const { promise: begun, resolve: known } = Promise.withResolvers<void>();
  async function* nothing(): AsyncGenerator<BotEvent> {}
  const metadata = async () => {
    asked += 1;
    return undefined;
  };
  const { settled } = followHistory(
    { metadata, history: nothing },
    {
      onQuestion: () => {},
      onAnswer: () => ({ onEvent: () => {}, onState: () => {}, onVerdict: () => {}, onError: () => {} }),
      onError: () => {},
      resumed: { begun, shows: () => false },
    },
  );
  await new Promise((resolve) => setImmediate(resolve));
  expect(asked).toBe(0);
  known();
  await settled;
  expect(asked).toBe(1);
  expect(timers()).toBeLessThanOrEqual(before);
});
