import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { Read } from '../../src/client/answer-text.ts';
import { type BotClient, createBotClient, RelayError } from '../../src/client/bot-client.ts';
import { type ConversationOptions, conversation } from '../../src/client/conversation.ts';
import { type BotRuns, deltaOf, startBotRuns } from '../support/bot-runs.ts';
import { OTHER_USER, startRelay, type TestRelay, USER } from '../support/relay.ts';
import { until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';

const BOT = { namespace: 'acme', botProviderName: 'helper' };
const completeOf = (text: string, messageId = 'm1') => ({
  messageComplete: { message: { messageId, text } },
});

const startOf = (messageId: string) => ({ messageStart: { message: { messageId } } });

/** Unhandled rejections. */
const unhandled: unknown[] = [];
const note = (reason: unknown) => void unhandled.push(reason);
beforeEach(() => void process.on('unhandledRejection', note));
afterEach(async () => {
  await sleep(0);
  process.off('unhandledRejection', note);
  expect(unhandled.splice(0)).toEqual([]);
});

describe('a conversation with a bot behind a relay', () => {
  let bot: BotRuns;
  let relay: TestRelay;
  beforeEach(async () => {
    bot = await startBotRuns();
    relay = await startRelay(bot.upstream.url, { JOIN_GRACE_MS: '200' });
  });
  afterEach(async () => {
    await relay.close();
    await bot.upstream.close();
  });

  /** A conversation of the usual user. */
  async function begin(options?: ConversationOptions) {
    const talk = conversation(createBotClient({ baseUrl: relay.url, ...BOT }), options);
    let told = 0;
    const leave = talk.subscribe(() => told++);
    await talk.actions.signIn(USER.name, USER.password);
    await until(() => talk.snapshot().session?.user.name === USER.name);
    const last = () => talk.snapshot().messages.at(-1);
    return { ...talk, ...talk.actions, leave, last, told: () => told };
  }

  /** The text and the state of a message that the bot has answered with events of these facts. */
  async function answerOf(facts: readonly object[], options?: ConversationOptions) {
    const { send, last, snapshot } = await begin(options);
    const sent = send('Hello');
    const run = await bot.run('Hello');
    run.begin();
    for (const fact of facts) run.send(fact);
    run.finish();
    await sent;
    await until(() => snapshot().status === 'idle');
    return last();
  }

  test.each([
    ['pieces', [deltaOf('You'), deltaOf(' said')], 'You said'],
    ['a whole text', [completeOf('You said')], 'You said'],
    [
      'pieces and then the whole text',
      [deltaOf('You'), deltaOf(' said'), completeOf('You said')],
      'You said',
    ],
    [
      'pieces that the whole text corrects',
      [deltaOf('You '), deltaOf('sed'), completeOf('You said')],
      'You said',
    ],
    [
      'several messages',
      [deltaOf('One', '1'), completeOf('One.', '1'), deltaOf('Two', '2'), completeOf('Two.', '2')],
      'One.\n\nTwo.',
    ],
    [
      'a message that comes again from its start, as after a resumption',
      [startOf('1'), deltaOf('You', '1'), startOf('1'), deltaOf('You', '1'), deltaOf(' said', '1')],
      'You said',
    ],
    [
      'a message that comes again behind a whole one',
      [completeOf('One.', '1'), startOf('2'), deltaOf('Tw', '2'), startOf('2'), deltaOf('Two', '2')],
      'One.\n\nTwo',
    ],
    ['empty pieces', [deltaOf(''), deltaOf('You')], 'You'],
    [
      'events without text',
      [
        { runInit: {} },
        { messageStart: { message: { messageId: 'm1' } } },
        { messageDelta: null },
        { messageDelta: { message: null } },
        { messageDelta: { message: { text: 5 } } },
        { messageDelta: 'text' },
        { ...deltaOf('You'), runError: null },
        { runDone: {} },
      ],
      'You',
    ],
  ])('reads %s', async (_, facts, text) => {
    expect(await answerOf(facts)).toMatchObject({ text, state: 'done' });
  });

  test('reads events of other forms with the option read, and ignores them without it', async () => {
    const { send, last } = await begin({ read: ({ raw }) => ({ add: `<${JSON.stringify(raw)}>` }) });
    const own = await begin();
    const both = [send('Hello'), own.send('Hello')];
    await until(() => bot.runs.length === 2);
    const odd =
      'data: text\n\ndata: null\n\ndata: 5\n\ndata: {"fact":null}\n\ndata: {"fact":"text"}\n\ndata: []\n\n';
    for (const { begin, write, finish } of bot.runs) {
      begin();
      write(odd);
      finish();
    }
    await Promise.all(both);
    await until(() => last()?.state === 'done' && own.last()?.state === 'done');
    expect(last()?.text).toBe('<"text"><null><5><{"fact":null}><{"fact":"text"}><[]>');
    expect(own.last()?.text).toBe('');
  });

  test.each([
    [{ message: 'Too many steps.', code: 'STEPS' }, 'Too many steps.', 'STEPS'],
    [{}, 'The run of the bot failed.', 'unexpected_response'],
  ])('fails with the error of the run %j', async (error, message, code) => {
    const answer = await answerOf([deltaOf('You'), { runError: { error } }]);
    expect(answer).toMatchObject({ text: 'You', state: 'failed', error: { message, code, status: 200 } });
    expect(answer?.error?.requestId).toBe(answer?.requestId);
    expect(answer?.requestId).toMatch(/./);
  });

  test.each<[string, Read]>([
    ['undefined', () => undefined],
    ['no text', () => ({})],
    ['a text', () => ({ text: 'read' })],
  ])('fails if the run fails, also with an option read that returns %s for it', async (_, read) => {
    const error = { message: 'Too many steps.', code: 'STEPS' };
    const answer = await answerOf([deltaOf('You'), { runError: { error } }], { read });
    expect(answer).toMatchObject({ state: 'failed', error: { ...error, status: 200 } });
  });

  test.each<[string, Read, string]>([
    ['as usual if it returns undefined', () => undefined, 'You said\n\nAnd'],
    ['without text if it returns an empty object', () => ({}), ''],
    [
      'in both ways',
      ({ eventType }) => (eventType === 'asgard.message.delta' ? {} : undefined),
      'You said\n\nAnd',
    ],
  ])('with the option read, reads an event %s', async (_, read, text) => {
    const facts = [deltaOf('You'), completeOf('You said'), completeOf('And', 'm2'), completeOf('', 'm3')];
    expect(await answerOf(facts, { read })).toMatchObject({ text, state: 'done' });
  });

  test('fails with the error that the option read throws, and closes the connection to the bot service', async () => {
    const mistake = new TypeError('a mistake');
    const { send, last, snapshot } = await begin({
      read() {
        throw mistake;
      },
    });
    const sent = send('Hello');
    const run = await bot.run('Hello');
    run.begin();
    run.say('You');
    await Promise.all([sent, run.gone]);
    await until(() => last()?.state === 'failed');
    expect(snapshot().error).toBeInstanceOf(RelayError);
    expect(snapshot().error).toMatchObject({
      message: 'a mistake',
      cause: mistake,
      requestId: last()?.requestId,
    });
  });

  test('calls its listeners once for many words, and not at all without a change', async () => {
    const { send, snapshot, told } = await begin();
    const before = told();
    const sent = send('Hello');
    const { answer } = await bot.run('Hello');
    answer(...Array.from({ length: 1000 }, () => 'word '));
    await sent;
    await until(() => snapshot().status === 'idle');
    expect(told() - before).toBeLessThan(100);
    const [shown, count] = [snapshot(), told()];
    await sleep(50);
    expect(snapshot()).toBe(shown);
    expect(told()).toBe(count);
  });

  test('never changes an earlier snapshot', async () => {
    const { send, snapshot, last } = await begin();
    const sent = send('Hello');
    const { begin: answer, say, finish } = await bot.run('Hello');
    answer();
    say('You');
    await until(() => last()?.text === 'You');
    const { messages } = snapshot();
    const copy = structuredClone(messages);
    say(' said');
    finish();
    await sent;
    await until(() => last()?.state === 'done');
    expect(messages).toEqual(copy);
    expect(snapshot().messages[0]).toBe(messages[0]);
  });

  test('continues when the same user signs in again, and is emptied for another user', async () => {
    const { send, signIn, snapshot } = await begin();
    const sent = send('Hello');
    (await bot.run('Hello')).answer('You');
    await sent;
    await signIn(USER.name, USER.password);
    void send('Still');
    const { gone } = await bot.run('Still');
    await until(() => snapshot().messages.length === 4);
    await signIn(OTHER_USER.name, OTHER_USER.password);
    await until(() => snapshot().session?.user.name === OTHER_USER.name);
    await gone;
    expect(snapshot()).toMatchObject({ messages: [], status: 'idle' });
    void send('Mine');
    await bot.run('Mine');
    await until(() => snapshot().messages.length === 2);
    const ids = snapshot().messages.map(({ id }) => id);
    expect(ids).toEqual([5, 6]);
  });

  test('sends nothing without listeners, and continues with the next listener', async () => {
    const { send, leave, subscribe, snapshot } = await begin();
    void send('Hello');
    const { gone } = await bot.run('Hello');
    leave();
    await gone;
    await send('Late');
    const leaveAgain = subscribe(() => {});
    void send('Again');
    await bot.run('Again');
    await until(() => snapshot().messages.length === 4);
    leaveAgain();
    expect(bot.runs.map(({ text }) => text)).toEqual(['Hello', 'Again']);
  });
});

describe('a conversation', () => {
  const session = (name: string) => ({ user: { id: name, name }, idleExpiresAt: '', absoluteExpiresAt: '' });
  const unauthenticated = () =>
    Response.json(
      { type: 'about:blank', status: 401, code: 'unauthenticated', detail: 'No.' },
      { status: 401 },
    );
  /** Its client's calls are answered by `answer`. */
  function withAnswers(answer: (path: string) => Response | Promise<Response>) {
    const client = createBotClient({
      baseUrl: 'http://relay.example.com',
      ...BOT,
      fetch: async (url) => answer(new URL(String(url)).pathname),
    });
    return { client, ...conversation(client) };
  }

  test('never rejects, even if its client does', async () => {
    const { actions, subscribe, snapshot } = withAnswers(() => {
      throw new Error('no network');
    });
    const leave = subscribe(() => {});
    await until(() => snapshot().error !== undefined);
    expect(snapshot().session).toBeUndefined();
    const { send, signIn, signInAsGuest, signOut } = actions;
    for (const act of [() => send('Hello'), () => signIn('ada', 'x'), signInAsGuest]) {
      expect(await act()).toBeUndefined();
      await until(() => snapshot().error?.code === 'unreachable');
    }
    expect(await signOut()).toEqual({ logoutUrl: null });
    leave();
  });

  test('fails if the answer is not from a relay', async () => {
    const { actions, subscribe, snapshot } = withAnswers(() => new Response('<html>'));
    const leave = subscribe(() => {});
    await actions.signIn('ada', 'x');
    await until(() => snapshot().error?.code === 'unexpected_response');
    expect(snapshot().session).toBeUndefined();
    leave();
  });

  test('returns the logout URL of the provider, and the address to sign in', async () => {
    const logoutUrl = 'https://id.example.com/end';
    const { actions, subscribe, snapshot } = withAnswers((path) =>
      Response.json(path === '/auth/logout' ? { logoutUrl } : session('ada')),
    );
    const leave = subscribe(() => {});
    await until(() => snapshot().session?.user.name === 'ada');
    expect(await actions.signOut()).toEqual({ logoutUrl });
    await until(() => snapshot().session === null);
    expect(actions.signInUrl('/chat?a=b')).toBe(
      'http://relay.example.com/auth/login?returnTo=%2Fchat%3Fa%3Db',
    );
    leave();
  });

  test('keeps a sign-in that is newer than the answer about the session', async () => {
    let answer: (response: Response) => void = () => {};
    const { actions, subscribe, snapshot } = withAnswers((path) =>
      path === '/auth/session'
        ? new Promise<Response>((resolve) => {
            answer = resolve;
          })
        : Response.json(session('guest')),
    );
    const leave = subscribe(() => {});
    await sleep(0);
    const signedIn = actions.signInAsGuest();
    await sleep(10);
    answer(unauthenticated());
    await signedIn;
    await sleep(20);
    expect(snapshot().session?.user.name).toBe('guest');
    leave();
  });

  test('keeps an error that came before the answer about the session', async () => {
    let answer: (response: Response) => void = () => {};
    const { actions, subscribe, snapshot } = withAnswers((path) =>
      path === '/auth/session'
        ? new Promise<Response>((resolve) => {
            answer = resolve;
          })
        : unauthenticated(),
    );
    const leave = subscribe(() => {});
    await actions.send('Hello');
    answer(Response.json(session('ada')));
    await until(() => snapshot().session?.user.name === 'ada');
    expect(snapshot().error?.code).toBe('unauthenticated');
    leave();
  });

  test('listens to its client only while it has listeners, and asks for the session when the first is added', async () => {
    let asked = 0;
    const { client, subscribe, snapshot } = withAnswers(() => {
      asked++;
      return Response.json(session('ada'));
    });
    const counts = countListeners(client);
    const leave = [subscribe(() => {}), subscribe(() => {})];
    await until(() => snapshot().session !== undefined);
    expect([counts(), asked]).toEqual([1, 1]);
    leave[0]?.();
    await sleep(0);
    expect(counts()).toBe(1);
    // As React's StrictMode does: all listeners are removed and added again in one task.
    leave[1]?.();
    leave[1]?.();
    const again = subscribe(() => {});
    await sleep(0);
    expect([counts(), asked]).toEqual([1, 1]);
    client.dispatchEvent(new Event('signed-out'));
    await until(() => snapshot().session === null);
    again();
    await sleep(0);
    expect(counts()).toBe(0);
    subscribe(() => {})();
    await sleep(0);
    expect([counts(), asked]).toEqual([0, 2]);
  });
});

/** How many listeners `client` has. */
function countListeners(client: BotClient): () => number {
  let count = 0;
  const { addEventListener, removeEventListener } = client;
  client.addEventListener = (...args: Parameters<typeof addEventListener>) => {
    count++;
    addEventListener.apply(client, args);
  };
  client.removeEventListener = (...args: Parameters<typeof removeEventListener>) => {
    count--;
    removeEventListener.apply(client, args);
  };
  return () => count;
}
