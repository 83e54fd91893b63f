import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { type BotClient, RelayError } from '../../src/client/session/bot-client.ts';
import { type ClientPair, countSignOuts, readAll, startClientPair } from '../harness/clients/client-pair.ts';
import { until } from '../harness/clock/until.ts';
import { OTHER_USER, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { chunk, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const LONG = Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]);

/** Intercepts the calls between the client and the relay. */
let intercept: (path: string, pass: () => Promise<Response>) => Promise<Response>;
/** Whether the client sends its cookie. */
let sendsCookie: boolean;
/** The cookie that was sent last. */
let lastCookie: string;
/** The cookie that all tabs share. */
let browserCookie: string;
let pair: ClientPair;
let client: BotClient;
let signOuts: () => number;

beforeEach(async () => {
  sendsCookie = true;
  browserCookie = '';
  intercept = (_, pass) => pass();
  pair = await startClientPair(
    (socket, { body }) =>
      void socket.write(String(body).includes('long') ? LONG : wholeStream('data: 1\n\n')),
    {},
    {
      fetch(url, init) {
        const headers = new Headers(init?.headers);
        if (!sendsCookie) headers.delete('Cookie');
        lastCookie = headers.get('Cookie') ?? '';
        return intercept(new URL(String(url)).pathname, () => fetch(url, { ...init, headers }));
      },
    },
  );
  client = pair.client;
  signOuts = countSignOuts(client);
});
afterEach(() => pair.close());

const signIn = (by = client) => by.signIn(USER.name, USER.password);
const send = async (by = client) => (await readAll(by.send('hi'))).error as RelayError | undefined;
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
    await signIn();
    await send();
    await send();
    await client.signOut();
    await client.signIn(OTHER_USER.name, OTHER_USER.password);
    await send();
    expectNewChannel();
  });

  test('is a new one after somebody else has signed in in another tab', async () => {
    const [tab, elsewhere] = [newTab(), newTab()];
    await signIn(tab);
    await send(tab);
    await tab.session();
    await send(tab);
    await elsewhere.signIn(OTHER_USER.name, OTHER_USER.password);
    expect(await tab.session()).toMatchObject({ user: { name: OTHER_USER.name } });
    await send(tab);
    expectNewChannel();
  });
});

describe('signing in by password', () => {
  test('returns the session, and so does session()', async () => {
    const session = {
      user: { id: USER.name, name: USER.name },
      idleExpiresAt: expect.stringMatching(/^\d{4}-.*Z$/),
      absoluteExpiresAt: expect.stringMatching(/^\d{4}-.*Z$/),
    };
    const other = pair.newClient();
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
});

test('signing in as a guest', async () => {
  const relay: TestRelay = await startRelay(pair.upstream.url, { AUTH_MODE: 'guest' });
  const guest = pair.newClient({ baseUrl: relay.url });
  expect(await guest.session()).toBeNull();
  const { user } = await guest.signInAsGuest();
  expect(user.id).toMatch(/./);
  expect(await guest.session()).toMatchObject({ user });
  expect(await send(guest)).toBeUndefined();
  await relay.close();
});

test('signInUrl returns the address to sign in at a provider', () => {
  expect(client.signInUrl('/chat?a=1')).toBe(`${pair.relay.url}/auth/login?returnTo=%2Fchat%3Fa%3D1`);
});

describe('signing out', () => {
  test('ends the session and dispatches signed-out once, also if a stream ends before the answer', async () => {
    let heard = 0;
    const streams = [1, 2].map(() => readAll(client.send('long'), () => heard++));
    await until(() => heard === 2);
    expect(await client.signOut()).toEqual({ logoutUrl: null });
    for (const { error } of await Promise.all(streams))
      expect(error).toMatchObject({ code: 'session_ended', status: 401 });
    expect(await client.session()).toBeNull();
    expect(await send()).toMatchObject({ code: 'unauthenticated' });
    expect(signOuts()).toBe(1);
  });

  test('succeeds if nobody is signed in', async () => {
    await client.signOut();
    expect(await client.signOut()).toEqual({ logoutUrl: null });
    expect(signOuts()).toBe(1);
  });

  test('at a provider returns its logout URL, or null', async () => {
    for (const logoutUrl of ['https://login.example.com/end?x=1', null]) {
      intercept = (path, pass) =>
        path === '/auth/logout' ? Promise.resolve(Response.json({ logoutUrl })) : pass();
      expect(await client.signOut()).toEqual({ logoutUrl });
    }
  });

  test('that fails signs nobody out', async () => {
    intercept = () => html(503);
    await expect(client.signOut()).rejects.toMatchObject({ code: 'unreachable', status: 503 });
    expect(signOuts()).toBe(0);
  });
});

describe('signed-out is dispatched', () => {
  const burst = () => Promise.all(Array.from({ length: 20 }, () => send()));

  test('once for a burst of 401, and again after another sign-in', async () => {
    for (const times of [1, 2]) {
      sendsCookie = false;
      for (const error of await burst())
        expect(error).toMatchObject({ code: 'unauthenticated', status: 401 });
      expect(await client.session()).toBeNull();
      expect(signOuts()).toBe(times);
      sendsCookie = true;
      await signIn();
    }
  });

  test('again if the user has signed in in another tab meanwhile', async () => {
    for (const times of [1, 2]) {
      sendsCookie = false;
      await send();
      expect(signOuts()).toBe(times);
      sendsCookie = true;
      expect(times === 2 ? await client.session() : await send()).not.toBeInstanceOf(Error);
    }
  });

  test('once for all streams that end with their session', async () => {
    let heard = 0;
    const streams = [1, 2, 3].map(() => readAll(client.send('long'), () => heard++));
    await until(() => heard === 3);
    const Cookie = lastCookie;
    await fetch(`${pair.relay.url}/auth/logout`, { method: 'POST', headers: { Cookie } });
    for (const { error } of await Promise.all(streams))
      expect(error).toMatchObject({ code: 'session_ended' });
    expect(signOuts()).toBe(1);
  });

  test('when session() finds that the session has ended', async () => {
    sendsCookie = false;
    expect(await client.session()).toBeNull();
    expect(signOuts()).toBe(1);
  });

  test('for the first message of a page that never asked whether somebody is signed in', async () => {
    const other = pair.newClient();
    const raised = countSignOuts(other);
    expect(await send(other)).toMatchObject({ code: 'unauthenticated' });
    expect(raised()).toBe(1);
  });
});

describe('signed-out is not dispatched', () => {
  test('by the first session() of a page that was never signed in, nor by its next message', async () => {
    const other = pair.newClient();
    const raised = countSignOuts(other);
    expect(await other.session()).toBeNull();
    await send(other);
    expect(await other.session()).toBeNull();
    expect(raised()).toBe(0);
  });

  test.each(['a 401', 'a stream'])(
    'for a new session by %s of the previous one that comes late',
    async (late) => {
      const { promise: held, resolve: release } = Promise.withResolvers<void>();
      let isHeld = false;
      intercept = async (path, pass) => {
        const response = await pass();
        if (!path.startsWith('/generic') || isHeld) return response;
        isHeld = true;
        await held;
        return response;
      };
      sendsCookie = late === 'a stream';
      const before = readAll(client.send('long'));
      await until(() => isHeld);
      sendsCookie = true;
      await client.signOut();
      expect(signOuts()).toBe(1);
      await signIn();
      release();
      expect((await before).error).toMatchObject({ status: 401 });
      expect(signOuts()).toBe(1);
      expect(await send()).toBeUndefined();
    },
  );

  test('for a session of another tab by a stream of the previous one that ends late', async () => {
    const [tab, elsewhere] = [newTab(), newTab()];
    const raised = countSignOuts(tab);
    await signIn(tab);
    let heard = 0;
    const before = readAll(tab.send('long'), () => heard++);
    await until(() => heard === 1);
    const old = browserCookie;
    browserCookie = '';
    await signIn(elsewhere);
    expect(await tab.session()).toMatchObject({ user: { name: USER.name } });
    await fetch(`${pair.relay.url}/auth/logout`, { method: 'POST', headers: { Cookie: old } });
    expect((await before).error).toMatchObject({ code: 'session_ended' });
    expect(raised()).toBe(0);
  });

  test('for a new session by a late 401 to a message before the sign-in', async () => {
    const other = pair.newClient();
    const raised = countSignOuts(other);
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    intercept = async (path, pass) => {
      const response = await pass();
      if (path.startsWith('/generic')) await held;
      return response;
    };
    const before = send(other);
    await pair.relay.logLine(({ outcome }) => outcome === 'unauthenticated');
    await signIn(other);
    release();
    expect(await before).toMatchObject({ code: 'unauthenticated' });
    expect(raised()).toBe(0);
  });

  test('because of the answer of a proxy, which session() does not take for a session', async () => {
    const other = pair.newClient();
    const raised = countSignOuts(other);
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
    expect(await send()).toMatchObject(problem);
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
    const [ada, bob, nobody] = [pair.newClient(), pair.newClient(), pair.newClient()];
    await signIn(ada);
    await bob.signIn(OTHER_USER.name, OTHER_USER.password);
    expect(await ada.session()).toMatchObject({ user: { name: USER.name } });
    expect(await bob.session()).toMatchObject({ user: { name: OTHER_USER.name } });
    expect(await nobody.session()).toBeNull();
    await ada.signOut();
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
