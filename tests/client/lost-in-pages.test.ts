import { expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { chatOf, chatStage, textsOf } from '../harness/clients/ai-sdk-chat.ts';
import { until } from '../harness/clock/until.ts';
import { deltaOf, eventOf } from '../harness/service/bot-runs.ts';

const on = chatStage({});
const WORDS = 'The relay was restarted; the answer is not complete.';
const LOST = { code: 'answer_lost', message: WORDS, retryable: false, maybeStarted: true };

/** Pages that send `Hello`. */
const PAGES = {
  async 'a channel'() {
    const channel = await on.stage.channel();
    const { getSnapshot } = channel;
    const texts = () =>
      getSnapshot().messages.map(({ parts }) => parts.map((part) => 'text' in part && part.text));
    return {
      sent: channel.send('Hello'),
      answer: () => texts()[1]?.join(),
      end: () => ({ status: getSnapshot().status, error: getSnapshot().messages[1]?.error }),
      again: () => undefined,
    };
  },
  async 'a chat of the AI SDK'() {
    const chat = chatOf(await on.stage.signedIn());
    return {
      sent: chat.sendMessage({ text: 'Hello' }),
      answer: () => textsOf(chat)[1]?.replace('assistant: ', ''),
      end: () => ({ status: chat.status, error: chat.error }),
      // It is not sent again either.
      again: () => chat.regenerate(),
    };
  },
};

/** A page whose answer says `You said`, its first event with this id, when the relay loses it. */
async function lost(page: keyof typeof PAGES, id?: number) {
  const its = await PAGES[page]();
  const run = await on.stage.bot.run('Hello');
  run.begin();
  run.write(`${id === undefined ? '' : `id: ${id}\n`}${eventOf({ runInit: {} })}`);
  run.say('You', ' said');
  await until(() => its.answer() === 'You said');
  on.stage.relay.open.endAll(new Problem('answer_lost', WORDS));
  return its;
}
const pages = Object.keys(PAGES) as (keyof typeof PAGES)[];

test.each(pages)('%s shows an answer that the relay loses whole, and once, if it has an id', async (page) => {
  const { sent, answer, end } = await lost(page, 1);
  const { runs, upstream } = on.stage.bot;
  await until(() => runs.length === 2);
  expect(upstream.requests.at(-1)?.all('Last-Event-ID')).toEqual(['1']);
  runs[1]?.begin();
  // What came after the id comes again.
  runs[1]?.write(['You', ' said', ' Hello'].map((text) => eventOf(deltaOf(text))).join(''));
  runs[1]?.finish();
  await sent;
  await until(() => end().status === 'ready');
  expect([answer(), end().error]).toEqual(['You said Hello', undefined]);
});

test.each(pages)('%s shows what has come, and the words of the relay, without an id', async (page) => {
  const { sent, answer, end, again } = await lost(page);
  await sent;
  await until(() => end().status === 'error');
  expect(end().error).toMatchObject({ name: 'RelayError', ...LOST });
  expect(answer()).toBe('You said');
  await again();
  expect(on.stage.bot.runs).toHaveLength(1);
});
