import { describe, expect, test } from '@jest/globals';
import { botChatTransport } from '../../src/client/ai-sdk/bot-chat-transport.ts';
import { chatOf, chatStage, sayIn, sendIn, textsOf } from '../harness/clients/ai-sdk-chat.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';
import { memoryStore } from '../harness/faults/cutting-front.ts';
import { deltaOf } from '../harness/service/bot-runs.ts';

const on = chatStage({ JOIN_GRACE_MS: '5000' });
const { runs, suspends } = on;
/** Where the browser keeps the names of messages under way. */
const KEPT = 'bot-relay-messages';

describe('after a reload', () => {
  /** A page that is gone in the middle of an answer; its store has the name of the message. */
  async function leftPage() {
    const { store, kept } = memoryStore();
    return { store, kept, ...(await on.streaming(await on.stage.signedIn({ ids: store }))) };
  }

  test('the chat goes on with the answer, which has run once', async () => {
    const { store, run } = await leftPage();
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    const resumed = chat.resumeStream();
    await until(() => textsOf(chat)[0] === 'assistant: You');
    sayIn(run, ' said');
    run.finish();
    await resumed;
    expect([textsOf(chat), chat.status, chat.error]).toEqual([['assistant: You said'], 'ready', undefined]);
    expect([runs(), suspends()]).toEqual([['Hello'], 0]);
  });

  test('a stop of that answer stops its run', async () => {
    const { store } = await leftPage();
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    void chat.resumeStream();
    await until(() => chat.status === 'streaming');
    await chat.stop();
    await until(() => suspends() === 1);
    expect([textsOf(chat), chat.status]).toEqual([['assistant: You'], 'ready']);
  });

  test('a second call in the same turn takes the place of the first one, and stops nothing', async () => {
    const { store, run } = await leftPage();
    const calls = heldCalls();
    const chat = chatOf(await on.stage.signedIn({ ids: store, fetch: calls.fetch }));
    const both = [chat.resumeStream(), chat.resumeStream()];
    await until(() => textsOf(chat)[0] === 'assistant: You');
    const third = chat.resumeStream();
    await until(() => calls.called.filter((address) => address.includes('message/run')).length === 2);
    sayIn(run, ' said');
    run.finish();
    await Promise.all([...both, third]);
    expect([textsOf(chat), chat.status, chat.error]).toEqual([['assistant: You said'], 'ready', undefined]);
    expect([runs(), suspends()]).toEqual([['Hello'], 0]);
  });

  test('one of two readers that ask at once gets the answer', async () => {
    const { store } = await leftPage();
    const { reconnectToStream } = botChatTransport(await on.stage.signedIn({ ids: store }));
    const asked = [1, 2].map(() => reconnectToStream({ chatId: 'my-chat' }));
    expect(await Promise.all(asked)).toEqual([null, expect.any(ReadableStream)]);
  });

  test('a stop while the relay is asked ends that', async () => {
    const { store } = await leftPage();
    const calls = heldCalls();
    calls.hold('message/run');
    const chat = chatOf(await on.stage.signedIn({ ids: store, fetch: calls.fetch }));
    const resumed = chat.resumeStream();
    await until(() => calls.called.some((address) => address.includes('message/run')));
    await chat.stop();
    await resumed;
    expect([chat.status, chat.error, suspends()]).toEqual(['ready', undefined, 0]);
  });

  test('the answer takes the place of what the page has kept of it', async () => {
    const { store, run, chat: left } = await leftPage();
    const toolCallStart = { processId: 'p', callSeq: 1, toolCall: { toolName: 'clock' } };
    sendIn(run, { toolCallStart });
    await until(() => left.messages[1]?.parts.length === 3);
    const messages = structuredClone(left.messages);
    const chat = chatOf(await on.stage.signedIn({ ids: store }), { init: { messages } });
    const resumed = chat.resumeStream();
    await until(() => chat.status === 'streaming');
    sayIn(run, ' said');
    run.finish();
    await resumed;
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You said']);
  });

  test('an answer that has said nothing yet is waited for', async () => {
    const { store } = memoryStore();
    void chatOf(await on.stage.signedIn({ ids: store })).sendMessage({ text: 'Hello' });
    const run = await on.stage.bot.run('Hello');
    run.begin();
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    const resumed = chat.resumeStream();
    await until(() => chat.status === 'submitted');
    sayIn(run, 'You');
    run.finish();
    await resumed;
    expect(textsOf(chat)).toEqual(['assistant: You']);
  });

  test('the newest of several answers goes on', async () => {
    const { store, chat: left } = await leftPage();
    void left.sendMessage({ text: 'Newer' });
    const newer = await on.stage.bot.run('Newer');
    newer.begin();
    sendIn(newer, deltaOf('Me'), 'run-2');
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    void chat.resumeStream();
    await until(() => textsOf(chat)[0] === 'assistant: Me');
  });

  test('there is nothing to go on with, and nothing is asked, if nothing was left', async () => {
    const calls = heldCalls();
    const { store } = memoryStore();
    const chat = chatOf(await on.stage.signedIn({ ids: store, fetch: calls.fetch }));
    const before = calls.called.length;
    await chat.resumeStream();
    expect([chat.status, chat.error, chat.messages]).toEqual(['ready', undefined, []]);
    expect(calls.called).toHaveLength(before);
  });

  test('an answer that the relay has no more is no error, and its name is forgotten', async () => {
    const { store, kept } = await leftPage();
    const [[at, user, bot, id]] = JSON.parse(`${store.getItem(KEPT)}`);
    store.setItem(KEPT, JSON.stringify([[at, user, bot, id, 'another message']]));
    const chat = chatOf(await on.stage.signedIn({ ids: store }));
    await chat.resumeStream();
    expect([chat.status, chat.error, chat.messages]).toEqual(['ready', undefined, []]);
    expect([runs(), kept.size]).toEqual([['Hello'], 0]);
  });
});
