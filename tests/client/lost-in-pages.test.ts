import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { RelayError } from '../../src/client/session/bot-client.ts';
import { Problem } from '../../src/errors.ts';
import { chatOf, textsOf } from '../harness/clients/ai-sdk-chat.ts';
import { allOf, refuseUnhandledRejections, startRunsStage } from '../harness/clients/channels.ts';
import { until } from '../harness/clock/until.ts';
import { deltaOf, eventOf } from '../harness/service/bot-runs.ts';

refuseUnhandledRejections();

let stage: Awaited<ReturnType<typeof startRunsStage>>;
beforeEach(async () => {
  stage = await startRunsStage({ OPERATIONS: 'message,chat' });
});
afterEach(() => stage.close());

const WORDS = 'The relay was restarted; the answer is not complete.';
const LOST = { code: 'answer_lost', message: WORDS, retryable: false, maybeStarted: true };
const lose = () => stage.relay.open.endAll(new Problem('answer_lost', WORDS));
const pieces = (...texts: string[]) => texts.map((text) => eventOf(deltaOf(text))).join('');

/** Answers `Hello` with an event that has this id, and with `You`. */
async function begin(id?: number) {
  const run = await stage.bot.run('Hello');
  run.begin();
  run.write(`${id === undefined ? '' : `id: ${id}\n`}${eventOf({ runInit: {} })}`);
  run.say('You', ' said');
}

/** Answers the resumption: what came after the id comes again, and the answer ends. */
async function goOn() {
  await until(() => stage.bot.runs.length === 2);
  expect(stage.bot.upstream.requests.at(-1)?.all('Last-Event-ID')).toEqual(['1']);
  stage.bot.runs[1]?.begin();
  stage.bot.runs[1]?.write(pieces('You', ' said', ' Hello'));
  stage.bot.runs[1]?.finish();
}

describe('a channel whose answer the relay loses', () => {
  test('reconnects, and shows the whole answer once', async () => {
    const channel = await stage.channel();
    const sent = channel.send('Hello');
    await begin(1);
    await until(() => allOf(channel)[1] === 'bot: You said (streaming)');
    lose();
    await until(() => channel.getSnapshot().status === 'reconnecting');
    expect(allOf(channel)).toEqual(['user: Hello', 'bot: You said (reconnecting)']);
    await goOn();
    expect(await sent).toMatchObject({ state: 'done' });
    await until(() => channel.getSnapshot().status === 'ready');
    expect(allOf(channel)).toEqual(['user: Hello', 'bot: You said Hello']);
  });

  test('shows what has come, and the words of the relay, if nothing had an id', async () => {
    const channel = await stage.channel();
    const sent = channel.send('Hello');
    await begin();
    await until(() => allOf(channel)[1] === 'bot: You said (streaming)');
    lose();
    expect(await sent).toMatchObject({ state: 'error', error: LOST });
    await until(() => channel.getSnapshot().status === 'error');
    expect(allOf(channel)).toEqual(['user: Hello', 'bot: You said (error)']);
    expect(stage.bot.runs).toHaveLength(1);
  });
});

describe('a chat of the AI SDK whose answer the relay loses', () => {
  test('shows the whole answer once', async () => {
    const chat = chatOf(await stage.signedIn());
    const sent = chat.sendMessage({ text: 'Hello' });
    await begin(1);
    await until(() => textsOf(chat)[1] === 'assistant: You said');
    lose();
    await goOn();
    await sent;
    expect([chat.status, chat.error]).toEqual(['ready', undefined]);
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You said Hello']);
  });

  test('fails with the words of the relay if nothing had an id, and does not run again', async () => {
    const chat = chatOf(await stage.signedIn());
    const sent = chat.sendMessage({ text: 'Hello' });
    await begin();
    await until(() => textsOf(chat)[1] === 'assistant: You said');
    lose();
    await sent;
    expect(chat.error).toBeInstanceOf(RelayError);
    expect(chat.error).toMatchObject(LOST);
    expect(textsOf(chat)).toEqual(['user: Hello', 'assistant: You said']);
    await chat.regenerate();
    expect(chat.error?.message).toMatch(/cannot take an answer back/);
    expect(stage.bot.runs).toHaveLength(1);
  });
});
