import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { type BotClient, RelayError } from '../../src/client/session/bot-client.ts';
import { followedSession } from '../../src/client/session/followed-session.ts';
import { sessionQuestions } from '../../src/client/session/session-calls.ts';
import { endSession } from '../harness/clients/channels.ts';
import { type ClientPair, countSignOuts, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { until } from '../harness/clock/until.ts';
import { OTHER_USER, startRelay, USER } from '../harness/relay/relay.ts';
import { chunk, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const LONG = Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]);

let pair: ClientPair;
beforeAll(async () => {
  pair = await startClientPair(
    (socket, { body }) =>
      void socket.write(String(body).includes('long') ? LONG : wholeStream('data: 1\n\n')),
    {},
    {
      fetch(url, init) {
        const headers = new Headers(init?.headers);
        if (!sendsCookie) headers.delete('Cookie');
        lastCookie = headers.get('Cookie') ?? '';
        const path = new URL(String(url)).pathname;
        asked.push(path);
        return intercept(path, () => fetch(url, { ...init, headers }));
      },
    },
  );
});
afterAll(() => pair.close());

/** Intercepts the calls between the clients and the relay. */
let intercept = (_path: string, pass: () => Promise<Response>) => pass();
/** Whether the clients send their cookie. */
let sendsCookie = true;
/** The cookie that was sent last. */
let lastCookie: string;
/** The paths of all calls. */
let asked: string[] = [];
/** The cookie that all tabs share. */
let browserCookie: string;
let client: BotClient;
let signOuts: () => number;
beforeEach(async () => {
  sendsCookie = true;
  browserCookie = '';
  intercept = (_, pass) => pass();
  pair.upstream.requests.length = 0;
  [client, signOuts] = stranger();
  await signIn();
  asked = [];
});

/** A client with which nobody has signed in, and a count of the sign-outs that it was told of. */
function stranger(): [BotClient, () => number] {
  const its = pair.newClient();
  return [its, countSignOuts(its)];
}
const signIn = (by = client, user = USER) => by.signIn(user.name, user.password);
const send = async (by = client) => (await readAll(by.send('hi'))).error as RelayError | undefined;
/** Streams that do not end by themselves, when the first event of each was read. */
async function streams(count: number, by = client) {
  let heard = 0;
  const all = Array.from({ length: count }, () => readAll(by.send('long'), () => heard++));
  await until(() => heard === count);
  return async () => (await Promise.all(all)).map(({ error }) => error);
}
/** A client that shares its cookie with the other tabs. */
function newTab(): BotClient {
  return pair.newClient({
    async fetch(url, init) {
      const headers = new Headers(init?.headers);
      headers.set('Cookie', browserCookie);
      const response = await fetch(url, { ...init, headers });
      browserCookie = response.headers.getSetCookie()[0]?.split(';', 1)[0] ?? browserCookie;
      return response;
    },
  });
}
const html = (status: number) =>
  Promise.resolve(new Response('<h1>Hello</h1>', { status, headers: { 'Content-Type': 'text/html' } }));

describe('the channel of messages that are texts', () => {
  /** Two messages were sent in one channel, and the third in another. */
  function expectNewChannel(): void {
    const sent = pair.upstream.requests.map(({ body }) => JSON.parse(String(body)).customChannelId as string);
    expect(sent).toEqual([sent[0], sent[0], expect.any(String)]);
    expect(sent[2]).not.toBe(sent[0]);
  }

  test('is a new one for each session, so that the next user does not continue the conversation', async () => {
    await send();
    await send();
    await client.signOut();
    await signIn(client, OTHER_USER);
    await send();
    expectNewChannel();
  });

  test('is a new one after somebody else has signed in in another tab', async () => {
    const [tab, elsewhere] = [newTab(), newTab()];
    await signIn(tab);
    await send(tab);
    await tab.session();
    await send(tab);
    await signIn(elsewhere, OTHER_USER);
    expect(await tab.session()).toMatchObject({ user: { name: OTHER_USER.name } });
    await send(tab);
    expectNewChannel();
  });
});

describe('signing in', () => {
  test('by password returns the session, and so does session()', async () => {
    const session = {
      user: { id: USER.name, name: USER.name },
      idleExpiresAt: expect.stringMatching(/^\d{4}-.*Z$/),
      absoluteExpiresAt: expect.stringMatching(/^\d{4}-.*Z$/),
    };
    const [other] = stranger();
    expect(await signIn(other)).toEqual(session);
    expect(await other.session()).toEqual(session);
    expect(await send(other)).toBeUndefined();
  });

  test('rejects with the relay’s problem when the password is wrong, and signs nobody out', async () => {
    const refused = client.signIn(USER.name, 'wrong');
    await expect(refused).rejects.toBeInstanceOf(RelayError);
    await expect(refused).rejects.toMatchObject({
      code: 'invalid_credentials',
      status: 401,
      requestId: expect.any(String),
    });
    expect(signOuts()).toBe(0);
    expect(await client.session()).toMatchObject({ user: { name: USER.name } });
  });

  test('as a guest', async () => {
    const relay = await startRelay(pair.upstream.url, { AUTH_MODE: 'guest' });
    const guest = pair.newClient({ baseUrl: relay.url });
    expect(await guest.session()).toBeNull();
    const { user } = await guest.signInAsGuest();
    expect(user.id).toMatch(/./);
    expect(await guest.session()).toMatchObject({ user });
    expect(await send(guest)).toBeUndefined();
    await relay.close();
  });

  test('at a provider has its own address', () => {
    const url = `${pair.relay.url}/auth/login?returnTo=%2Fchat%3Fa%3D1`;
    expect(client.signInUrl('/chat?a=1')).toBe(url);
  });
});

describe('signing out', () => {
  test('ends the session and dispatches signed-out once, also if a stream ends before the answer', async () => {
    const ends = await streams(2);
    expect(await client.signOut()).toEqual({ logoutUrl: null });
    const ended = expect.objectContaining({ code: 'session_ended', status: 401 });
    expect(await ends()).toEqual([ended, ended]);
    expect(await client.session()).toBeNull();
    expect(await send()).toMatchObject({ code: 'unauthenticated' });
    // If nobody is signed in, it succeeds, too.
    expect(await client.signOut()).toEqual({ logoutUrl: null });
    expect(signOuts()).toBe(1);
  });

  test('at a provider returns its logout URL', async () => {
    const logoutUrl = 'https://login.example.com/end?x=1';
    intercept = async () => Response.json({ logoutUrl });
    expect(await client.signOut()).toEqual({ logoutUrl });
  });

  test('that fails signs nobody out', async () => {
    intercept = () => html(503);
    await expect(client.signOut()).rejects.toMatchObject({ code: 'unreachable', status: 503 });
    expect(signOuts()).toBe(0);
  });
});

describe('signed-out is dispatched', () => {
  test('once for a burst of 401, and again after another sign-in, also one in another tab', async () => {
    const ways = [() => signIn(), () => client.session(), () => send(), () => signIn()];
    for (const [at, comeBack] of ways.entries()) {
      sendsCookie = false;
      for (const error of await Promise.all([send(), send(), send()]))
        expect(error).toMatchObject({ code: 'unauthenticated', status: 401 });
      expect(await client.session()).toBeNull();
      expect(signOuts()).toBe(at + 1);
      sendsCookie = true;
      await comeBack();
    }
  });

  test('once for all streams that end with their session', async () => {
    const ends = await streams(3);
    await endSession(pair.relay);
    const ended = expect.objectContaining({ code: 'session_ended' });
    expect(await ends()).toEqual([ended, ended, ended]);
    expect(signOuts()).toBe(1);
  });

  test('when session() finds that the session has ended', async () => {
    sendsCookie = false;
    expect(await client.session()).toBeNull();
    expect(signOuts()).toBe(1);
  });

  test('for the first message of a page that never asked whether somebody is signed in', async () => {
    const [other, raised] = stranger();
    expect(await send(other)).toMatchObject({ code: 'unauthenticated' });
    expect(raised()).toBe(1);
  });
});

describe('signed-out is not dispatched', () => {
  test('by the first session() of a page that was never signed in, nor by its next message', async () => {
    const [other, raised] = stranger();
    expect(await other.session()).toBeNull();
    await send(other);
    expect(await other.session()).toBeNull();
    expect(raised()).toBe(0);
  });

  test.each([
    ['a 401 of the previous one', 1],
    ['a stream of the previous one', 1],
    ['a 401 to a message before it', 0],
  ])('for a new session by %s that comes late', async (late, before) => {
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    const [other, raised] = before ? [client, signOuts] : stranger();
    let isHeld = false;
    intercept = async (path, pass) => {
      const response = await pass();
      if (!path.startsWith('/generic') || isHeld) return response;
      isHeld = true;
      await held;
      return response;
    };
    sendsCookie = late.startsWith('a stream');
    const sent = readAll(other.send('long'));
    await until(() => isHeld);
    sendsCookie = true;
    if (before) await other.signOut();
    await signIn(other);
    release();
    expect((await sent).error).toMatchObject({ status: 401 });
    expect(raised()).toBe(before);
    expect(await send(other)).toBeUndefined();
  });

  test('for a session of another tab by a stream of the previous one that ends late', async () => {
    const [tab, elsewhere] = [newTab(), newTab()];
    const raised = countSignOuts(tab);
    await signIn(tab);
    const ends = await streams(1, tab);
    const old = browserCookie;
    browserCookie = '';
    await signIn(elsewhere);
    expect(await tab.session()).toMatchObject({ user: { name: USER.name } });
    await fetch(`${pair.relay.url}/auth/logout`, { method: 'POST', headers: { Cookie: old } });
    expect(await ends()).toMatchObject([{ code: 'session_ended' }]);
    expect(raised()).toBe(0);
  });

  test('because of the answer of a proxy, which session() does not take for a session', async () => {
    const [other, raised] = stranger();
    intercept = () => html(200);
    const problem = { name: 'RelayError', code: 'unexpected_response', status: 200 };
    await expect(other.session()).rejects.toMatchObject(problem);
    await expect(signIn(other)).rejects.toMatchObject(problem);
    await expect(other.signOut()).rejects.toMatchObject(problem);
    expect(await send(other)).toMatchObject(problem);
    intercept = () => html(401);
    expect(await send(other)).toMatchObject({ ...problem, status: 401 });
    intercept = (_, pass) => pass();
    expect(await other.session()).toBeNull();
    expect(raised()).toBe(0);
  });

  test('when the relay cannot be reached', async () => {
    intercept = () => Promise.reject(new TypeError('no network'));
    const problem = { name: 'RelayError', code: 'unreachable', status: 0 };
    await expect(client.session()).rejects.toMatchObject(problem);
    await expect(client.signOut()).rejects.toMatchObject(problem);
    expect(signOuts()).toBe(0);
  });
});

describe('the session cookie in Node.js', () => {
  test('is not kept unless the client is told to: a server may use it for the pages of many users', async () => {
    const ofMany = pair.newClient({ cookies: undefined });
    expect(await signIn(ofMany)).toMatchObject({ user: { name: USER.name } });
    expect(await ofMany.session()).toBeNull();
  });

  test('is kept by each client separately', async () => {
    const [[bob], [nobody]] = [stranger(), stranger()];
    await signIn(bob, OTHER_USER);
    expect(await client.session()).toMatchObject({ user: { name: USER.name } });
    expect(await bob.session()).toMatchObject({ user: { name: OTHER_USER.name } });
    expect(await nobody.session()).toBeNull();
    await client.signOut();
    expect(await bob.session()).toMatchObject({ user: { name: OTHER_USER.name } });
  });

  test('is removed when the relay clears it', async () => {
    await client.session();
    expect(lastCookie).toMatch(/^[^=;]+=[^;]+$/);
    await client.signOut();
    await client.session();
    expect(lastCookie).toBe('');
  });
});

describe('the session that a page follows', () => {
  const questions = () => asked.filter((path) => path === '/auth/session').length;

  test('is asked for once, whatever reads it, and not before', async () => {
    const [other] = stranger();
    const channels = [createChannel(other), createChannel(other, { id: 'one' })];
    const { subscribe, getSnapshot } = followedSession(other);
    for (const { getSnapshot } of [...channels, followedSession(other)]) getSnapshot();
    // A question would have been asked before this call, which tells no other client who is signed in.
    await fetch(`${pair.relay.url}/healthz`);
    expect(questions()).toBe(0);
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    intercept = async (_, pass) => {
      const response = await pass();
      await held;
      return response;
    };
    for (const channel of channels) channel.subscribe(() => {});
    const leave = subscribe(() => {});
    const both = Promise.all([other.session(), other.session()]);
    // Those who subscribe ask in a timer that was set before this one: no answer may come earlier.
    setTimeout(release, 1);
    expect(await both).toEqual([null, null]);
    await until(() => channels.every((channel) => channel.getSnapshot().session === null));
    expect(getSnapshot()).toEqual({ session: null, error: undefined });
    leave();
    expect(questions()).toBe(1);
  });

  test('is not known again when nobody has listened for a while', async () => {
    const { subscribe, getSnapshot } = followedSession(client);
    const leave = subscribe(() => {});
    await until(() => getSnapshot().session?.user.name === USER.name);
    leave();
    await endSession(pair.relay);
    const end = subscribe(() => {});
    expect(getSnapshot().session).toBeUndefined();
    await until(() => getSnapshot().session === null);
    end();
  });

  test('is asked for again while the relay is away', async () => {
    const [other] = stranger();
    intercept = () => html(503);
    const channel = createChannel(other);
    const leave = channel.subscribe(() => {});
    await until(() => channel.getSnapshot().error?.status === 503);
    expect(channel.getSnapshot().session).toBeUndefined();
    intercept = (_, pass) => pass();
    await until(() => channel.getSnapshot().session === null);
    leave();
  });
});

describe('who is signed in', () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());
  const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);
  /** Questions that fail with this status, 0 while nothing answers; and when they were asked, in ms. */
  function asking(status?: number) {
    const times: number[] = [];
    const session = async () => {
      times.push(Date.now());
      if (status !== undefined) throw new RelayError('It fails.', { code: 'x', status });
      return undefined;
    };
    return { ...sessionQuestions({ session }, () => {}), times };
  }
  /** A session that ends in so many ms. */
  const ending = (ms: number) => ({
    user: { id: 'ada', name: 'Ada' },
    idleExpiresAt: new Date(Date.now() + ms).toISOString(),
    absoluteExpiresAt: '',
  });

  test.each([500, 0])('is asked at the end of a session until the relay can say so: %d', async (status) => {
    const { begin, awaitEnd, times, end } = asking(status);
    begin();
    awaitEnd(ending(60_000));
    await pass(600_000);
    const before = times.length;
    await pass(600_000);
    expect(times.length - before).toBeGreaterThan(10);
    expect(times.length - before).toBeLessThan(70);
    awaitEnd(null);
    await pass(600_000);
    const after = times.length;
    await pass(600_000);
    expect(times).toHaveLength(after);
    end();
  });

  test.each([0, 429, 503])('is asked again after %d, with longer pauses', async (status) => {
    const { begin, times } = asking(status);
    begin();
    await pass(600_000);
    const pauses = times.slice(1).map((time, at) => time - Number(times[at]));
    expect(pauses.length).toBeGreaterThan(5);
    expect(pauses).toEqual([...pauses].sort((one, other) => one - other));
    expect(Number(pauses.at(-1)) / Number(pauses[0])).toBeGreaterThan(10);
  });

  test.each<[string, number | undefined, (questions: ReturnType<typeof asking>) => Promise<void> | void]>([
    ['after an error that is no temporary one, while nobody is known', 500, () => {}],
    ['if nobody is learnt to be signed in before it is asked', undefined, ({ awaitEnd }) => awaitEnd(null)],
    [
      'if the end of the session cannot be read',
      undefined,
      ({ awaitEnd }) => awaitEnd({ ...ending(0), idleExpiresAt: '' }),
    ],
    [
      'and not after the end',
      0,
      async ({ awaitEnd, end }) => {
        awaitEnd(ending(1_000));
        await pass(10);
        end();
      },
    ],
  ])('is asked once %s', async (_, status, act) => {
    const questions = asking(status);
    questions.begin();
    await act(questions);
    await pass(600_000);
    expect(questions.times).toHaveLength(1);
  });
});
