import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { botConversation } from '../../src/client/channel/bot-conversation.ts';
import { type BotClient, RelayError } from '../../src/client/session/bot-client.ts';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { countSignOuts, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { type TestOptions, testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import {
  CANARY,
  LONG_NAMED_USER,
  OTHER_USER,
  startRelay,
  type TestRelay,
  USER,
} from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/service/raw-upstream.ts';

let service: BotService;
let relay: TestRelay;
let ada: BotClient;
let bob: BotClient;
beforeAll(async () => {
  service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 5 }, limit: 1000 });
  relay = await startRelay(service.url, { BOTS: 'demo/*', OPERATIONS: 'message,chat,files' });
  [ada, bob] = await Promise.all([signedIn(USER), signedIn(OTHER_USER)]);
});
afterAll(async () => {
  await relay.close();
  await service.close();
});

const newClient = (options: Partial<TestOptions> = {}) => {
  const bot = { namespace: 'demo', botProviderName: 'echo' };
  return testClient({ baseUrl: relay.url, ...bot, ...options });
};
async function signedIn({ name, password }: typeof USER, options?: Partial<TestOptions>): Promise<BotClient> {
  const client = newClient(options);
  await client.signIn(name, password);
  return client;
}

interface Fact {
  readonly messageUser?: { readonly text: string; readonly customMessageId: string };
  readonly messageComplete?: { readonly message: { readonly messageId: string; readonly text: string } };
  readonly toolCallConsent?: { readonly pendingCalls: readonly { readonly toolCallId: string }[] };
}
const factOf = ({ raw }: { raw: unknown }) => (raw as { fact: Fact }).fact;
/** The whole messages of the user and of the bot. */
const saidIn = (events: readonly { raw: unknown }[]) =>
  events
    .map(factOf)
    .flatMap(({ messageUser, messageComplete }) => messageUser?.text ?? messageComplete?.message.text ?? []);
const refused = (promise: Promise<unknown>) =>
  promise.then(
    () => expect('resolved').toBe('rejected'),
    (error) => error,
  );
const LONG = 'word '.repeat(2_000);

describe('a conversation that the bot service does not have yet', () => {
  test('has no metadata, an empty history, and nothing to stop or to reset', async () => {
    const talk = botConversation(ada, 'new');
    expect(await talk.metadata()).toBeUndefined();
    expect(await readAll(talk.history())).toEqual({ events: [], error: undefined });
    expect(await talk.stop()).toBe(false);
    expect(await talk.reset()).toBe(false);
  });
});

describe('a conversation', () => {
  test('has metadata and a history, for its user alone', async () => {
    const talk = botConversation(ada, 'history');
    await readAll(talk.send('One'));
    await readAll(talk.send({ text: 'Two' }));
    expect(await talk.metadata()).toMatchObject({
      customChannelId: 'history',
      title: 'One',
      runState: 'IDLE',
    });
    const { events, error } = await readAll(talk.history());
    expect(error).toBeUndefined();
    expect(saidIn(events)).toEqual(['One', 'You said: One', 'Two', 'You said: Two']);
    expect(events.map(factOf)[0]?.messageUser?.customMessageId).toMatch(/^[\d-]{15,}$/);
    expect(await botConversation(bob, 'history').metadata()).toBeUndefined();
    expect((await readAll(botConversation(bob, 'history').history())).events).toEqual([]);
  });

  test('has a live history, which shows a run to its end until the page leaves', async () => {
    const talk = botConversation(ada, 'live');
    const run = readAll(talk.send('word '.repeat(100)));
    let runState: unknown;
    while (runState !== 'RUNNING') runState = (await talk.metadata())?.runState;
    const live = await readAll(talk.history());
    await run;
    expect(saidIn(live.events).at(-1)).toMatch(/^You said:( word){100}$/);
    expect(JSON.stringify(live.events.at(-1)?.raw)).toContain('runDone');
  });

  test('is stopped: its run ends, and its answer with it', async () => {
    const talk = botConversation(ada, 'stop');
    let stopped: Promise<boolean> | undefined;
    const { events, error } = await readAll(talk.send(LONG), ({ raw }) => {
      if (JSON.stringify(raw).includes('messageDelta')) stopped ??= talk.stop();
    });
    expect(await stopped).toBe(true);
    expect(error).toBeUndefined();
    expect(saidIn(events)[0]?.length).toBeLessThan(LONG.length / 2);
    expect((await talk.metadata())?.runState).toBe('IDLE');
    expect(await talk.stop()).toBe(false);
  });

  test('takes files, which a message names and a page downloads', async () => {
    const talk = botConversation(ada, 'files');
    const file = new File(['The text of the file'], 'a note.txt', { type: 'text/plain' });
    const blobId = await talk.upload(file);
    expect(blobId).toMatch(/^[0-9a-f-]{36}$/);
    const { events } = await readAll(talk.send({ text: 'See', blobIds: [blobId] }));
    expect(saidIn(events)).toEqual(['You said: See You sent: a note.txt']);
    const url = talk.downloadUrl('a note.txt');
    expect(url.startsWith(`${relay.url}/generic/ns/demo/bot-provider/echo/channel-home/download?`)).toBe(
      true,
    );
    const answer = await fetch(url, { headers: { Cookie: await relay.signIn(USER) } });
    expect([answer.status, await answer.text()]).toEqual([200, 'The text of the file']);
    const foreign = await readAll(botConversation(bob, 'files').send({ text: 'See', blobIds: [blobId] }));
    expect(foreign.error).toMatchObject({ code: 'not_your_conversation', status: 403 });
  });

  test('ends an upload when its signal is aborted, with its reason', async () => {
    const pair = await startClientPair(() => {}, { OPERATIONS: 'message,files' });
    try {
      const reason = new Error('another file was chosen');
      const abort = new AbortController();
      const talk = botConversation(pair.client, 'files');
      const file = new File([new Uint8Array(5_000_000)], 'x');
      const upload = refused(talk.upload(file, abort));
      await until(() => pair.upstream.sockets.length > 0);
      abort.abort(reason);
      expect(await upload).toBe(reason);
      await until(() => pair.upstream.sockets[0]?.closed === true);
      expect(await refused(talk.upload(file, abort))).toBe(reason);
    } finally {
      await pair.close();
    }
  });

  test.each(['"text"', '{"data":["title"]}'])('fails if its metadata is %s', async (json) => {
    const head = ['Content-Type: application/json'];
    const pair = await startClientPair((socket) => void socket.write(plainAnswer('200 OK', head, json)));
    try {
      const error = await refused(botConversation(pair.client, 'odd').metadata());
      expect(error).toBeInstanceOf(RelayError);
      expect(error).toMatchObject({ code: 'unexpected_response', status: 200 });
    } finally {
      await pair.close();
    }
  });

  test('takes feedback, and rejects it for an unknown message', async () => {
    const talk = botConversation(ada, 'feedback');
    const { events } = await readAll(talk.send('Hello'));
    const messageId = events.map(factOf).flatMap((fact) => fact.messageComplete?.message.messageId ?? [])[0];
    await talk.feedback({ messageId: `${messageId}`, verdict: 'GOOD', comment: 'Yes.' });
    const kept = JSON.stringify((await readAll(talk.history())).events);
    expect(kept).toContain(`"targetMessageId":"${messageId}","verdict":"GOOD","comment":"Yes."`);
    const error = await refused(talk.feedback({ messageId: 'other', verdict: 'BAD' }));
    expect(error).toBeInstanceOf(RelayError);
    expect(error).toMatchObject({ code: 'missing', status: 404 });
    const wrong = await refused(talk.feedback({ messageId: `${messageId}`, verdict: 'ok' as 'GOOD' }));
    const upstream = { error: { code: 'INVALID_FEEDBACK', message: expect.any(String) } };
    expect(wrong).toMatchObject({ code: 'upstream_refused', status: 400, upstream });
  });

  test('keeps its id, whatever a message names', async () => {
    const talk = botConversation(ada, 'own');
    await readAll(talk.send({ text: 'Here', customChannelId: 'another' }));
    expect(await talk.metadata()).toMatchObject({ title: 'Here' });
    expect(await botConversation(ada, 'another').metadata()).toBeUndefined();
  });

  test('is empty after a reset, which runs nothing, and stays', async () => {
    const talk = botConversation(ada, 'reset');
    await readAll(talk.send('Hello'));
    const messages = () =>
      relay.logs.filter(({ route, method }) => method === 'POST' && `${route}`.endsWith('message/sse'))
        .length;
    const before = messages();
    expect(await talk.reset()).toBe(true);
    expect(messages()).toBe(before);
    expect(await talk.metadata()).toMatchObject({ title: null });
    expect(saidIn((await readAll(talk.history())).events)).toEqual([]);
  });

  test('goes on when the user allows a tool', async () => {
    const client = await signedIn(USER, { botProviderName: 'tools' });
    const talk = botConversation(client, 'consent');
    const asked = await readAll(talk.send('What time is it?'));
    const calls = asked.events.map(factOf).flatMap((fact) => fact.toolCallConsent?.pendingCalls ?? []);
    expect(calls).toHaveLength(1);
    const consents = calls.map(({ toolCallId }) => ({ toolCallId, result: 'ALLOW_ONCE' as const }));
    expect(saidIn((await readAll(talk.consent(consents))).events)).toEqual([
      expect.stringMatching(/^It is \d\d:\d\d in UTC\.$/),
    ]);
  });
});

describe('an operation that fails', () => {
  test('rejects with the problem of the relay', async () => {
    const off = await startRelay(service.url, { BOTS: 'demo/*', OPERATIONS: 'message' });
    try {
      const client = await signedIn(USER, { baseUrl: off.url });
      const talk = botConversation(client, 'c');
      const each = [
        talk.metadata(),
        talk.stop(),
        talk.reset(),
        talk.upload(new File(['x'], 'x')),
        talk.feedback({ messageId: 'm', verdict: 'BAD' }),
        readAll(talk.history()).then(({ error }) => Promise.reject(error)),
      ];
      for (const error of await Promise.all(each.map(refused))) {
        expect(error).toBeInstanceOf(RelayError);
        expect(error).toMatchObject({ code: 'operation_not_enabled', status: 501 });
        expect(error.requestId).toMatch(/./);
      }
    } finally {
      await off.close();
    }
  });

  test('raises signed-out if the session is over, once', async () => {
    const client = await signedIn(LONG_NAMED_USER);
    const signOuts = countSignOuts(client);
    const talk = botConversation(client, 'c');
    expect(await talk.metadata()).toBeUndefined();
    const headers = { Cookie: await relay.signIn(LONG_NAMED_USER) };
    expect((await fetch(`${relay.url}/auth/logout-all`, { method: 'POST', headers })).status).toBe(204);
    for (const error of await Promise.all([refused(talk.metadata()), refused(talk.stop())]))
      expect(error).toMatchObject({ code: 'unauthenticated', status: 401 });
    expect(signOuts()).toBe(1);
  });

  test("does not take a 404 that is not the bot service's for a fact", async () => {
    const page = new Response('<h1>Not found</h1>', {
      status: 404,
      headers: { 'Content-Type': 'text/html' },
    });
    const client = newClient({ fetch: async () => page.clone() });
    expect(await refused(botConversation(client, 'c').metadata())).toMatchObject({
      code: 'unexpected_response',
      status: 404,
    });
    const other = await signedIn(USER, { namespace: 'other', botProviderName: 'bot' });
    expect(await refused(botConversation(other, 'c').metadata())).toMatchObject({ code: 'unknown_bot' });
  });
});
