import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { internalsOf } from '../../src/client/session/client-internals.ts';
import { followedSession, sessionActions } from '../../src/client/session/followed-session.ts';
import {
  aChannelWasDropped,
  allOf,
  endSession,
  isOf,
  refuseUnhandledRejections,
  startRunsStage,
  USER,
} from '../harness/clients/channels.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';

refuseUnhandledRejections();

const BOT = { namespace: 'acme', botProviderName: 'helper' };
let stage: Awaited<ReturnType<typeof startRunsStage>>;
beforeEach(async () => {
  stage = await startRunsStage({ JOIN_GRACE_MS: '200' });
});
afterEach(() => stage.close());

/** A client whose questions for the session are counted. */
function counted() {
  let asked = 0;
  const own: typeof fetch = (url, init) => {
    if (String(url).endsWith('/auth/session')) asked += 1;
    return fetch(url, init);
  };
  return {
    client: testClient({ baseUrl: stage.relay.url, ...BOT, fetch: own }),
    asked: () => asked,
  };
}

describe('the session of a client', () => {
  test('is asked for once, whatever reads it', async () => {
    const { client, asked } = counted();
    const channels = [createChannel(client), createChannel(client, { id: 'one' })];
    for (const channel of channels) channel.subscribe(() => {});
    const leave = followedSession(client).subscribe(() => {});
    expect(await Promise.all([client.session(), client.session()])).toEqual([null, null]);
    await until(() => channels.every((channel) => channel.getSnapshot().session === null));
    expect(followedSession(client).getSnapshot()).toEqual({ session: null, error: undefined });
    leave();
    expect(asked()).toBe(1);
  });

  test('is asked for only when somebody listens', async () => {
    const { client, asked } = counted();
    createChannel(client).getSnapshot();
    followedSession(client).getSnapshot();
    // A question would have been asked before these.
    await stage.signedIn();
    expect(asked()).toBe(0);
  });

  test('opens a channel that is of one user for nobody else', async () => {
    const client = await stage.signedIn();
    const own = `${(await client.session())?.user.id}`;
    const channels = [own, 'another'].map((user) =>
      createChannel(client, { id: `of ${user}`, expert: { user } }),
    );
    for (const channel of channels) channel.subscribe(() => {});
    await until(() => channels.every((channel) => channel.getSnapshot().session));
    expect(channels.map(({ id }) => id)).toEqual([`of ${own}`, undefined]);
  });

  test('is not known again when nobody has listened for a while', async () => {
    const client = await stage.signedIn();
    const { subscribe, getSnapshot } = followedSession(client);
    const leave = subscribe(() => {});
    await until(() => getSnapshot().session?.user.name === USER.name);
    leave();
    await endSession(stage.relay);
    const end = subscribe(() => {});
    expect(getSnapshot().session).toBeUndefined();
    await until(() => getSnapshot().session === null);
    end();
  });

  test('is asked for again with pauses while the relay is away', async () => {
    const front = await startFakeLoadBalancer({
      answer(_, res) {
        if (isUp) return false;
        res.writeHead(503).end();
        return true;
      },
    });
    let isUp = false;
    front.forwardTo(stage.relay.port);
    const client = testClient({ baseUrl: front.url, ...BOT });
    const channel = createChannel(client);
    channel.subscribe(() => {});
    await until(() => channel.getSnapshot().error?.status === 503);
    expect(channel.getSnapshot().session).toBeUndefined();
    isUp = true;
    await isOf(channel, null);
    await front.close();
  });

  test('that is missing refuses a message without a call', async () => {
    const { client } = counted();
    const answer = await createChannel(client).send('Hello');
    expect(answer).toMatchObject({ state: 'error', error: { code: 'unauthenticated' } });
    expect(stage.bot.runs).toHaveLength(0);
  });
});

/** A channel with one answer. */
async function said() {
  const client = await stage.signedIn();
  const channel = createChannel(client, { id: 'my-channel' });
  channel.subscribe(() => {});
  const sent = channel.send('Hello');
  (await stage.bot.run('Hello')).answer('You');
  await sent;
  await until(() => allOf(channel).at(-1) === 'bot: You');
  return { client, channel };
}

test('a sign-out empties channels also if the streams of its session have told of it first', async () => {
  const { client, channel } = await said();
  const { tracker } = internalsOf(client);
  const askedIn = tracker.current();
  // What a stream learns when the relay ends it, before the answer to the sign-out is there.
  tracker.learn(false, askedIn);
  tracker.learn(null, askedIn);
  await isOf(channel, null);
  expect(allOf(channel)).toEqual([]);
});

test('no function of a channel and of its session rejects', async () => {
  const client = testClient({
    baseUrl: 'http://relay.example.com',
    ...BOT,
    fetch: () => Promise.reject(new TypeError('no network')),
  });
  const channel = createChannel(client);
  const { getSnapshot } = followedSession(client);
  const actions = sessionActions(client);
  expect(await channel.send('Hello')).toMatchObject({ state: 'error', error: { code: 'unreachable' } });
  expect(await channel.upload(new File(['text'], 'a.txt'))).toBeUndefined();
  // A page in JavaScript can pass anything.
  expect(await channel.upload(new File(['text'], 'a.txt'), null as never)).toBeUndefined();
  expect(await channel.send(null as never)).toBeUndefined();
  expect(await channel.feedback('none', 'GOOD')).toBe(false);
  expect(await channel.reset()).toBe(false);
  expect(await channel.consent('none', true)).toBeUndefined();
  expect(await channel.regenerate('none')).toBeUndefined();
  await channel.stop();
  await actions.signIn('ada', 'x');
  expect(getSnapshot().error?.code).toBe('unreachable');
  expect(await actions.signOut()).toEqual({ logoutUrl: null });
  await actions.signInAsGuest();
});

/** What a process prints in which `program` uses a client of the relay at `baseUrl`, and how it ends. */
async function runProcess(program: string, baseUrl: string) {
  const begin = `
    const { createBotClient, createChannel } = await import(process.env.CLIENT);
    const client = createBotClient({ expert: { cookies: 'keep' }, baseUrl: '${baseUrl}', namespace: 'a', botProviderName: 'b' });
    const channel = createChannel(client);
    channel.subscribe(() => {});
  `;
  const child = spawn(process.execPath, ['--input-type=module', '-e', begin + program], {
    env: { CLIENT: fileURLToPath(new URL('../../src/client/index.ts', import.meta.url)) },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 15_000,
  });
  const [out, err, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  return { out, err, code };
}

describe('a process with a channel', () => {
  test('ends when its messages have ended, also if the relay is away', async () => {
    const program = `
      const answer = await channel.send('Hello');
      await channel.stop();
      console.log(answer.error.code);
    `;
    const ended = await runProcess(program, 'http://127.0.0.1:9');
    expect(ended).toEqual({ out: 'unreachable\n', err: '', code: 0 });
  });

  test('ends while its session goes on', async () => {
    const program = `
      await new Promise((resolve) => setTimeout(resolve, 1));
      const { user } = await client.signIn('${USER.name}', '${USER.password}');
      console.log(user.name);
    `;
    const ended = await runProcess(program, stage.relay.url);
    expect(ended).toEqual({ out: `${USER.name}\n`, err: '', code: 0 });
  });
});

describe('the messages of a channel', () => {
  test('go when the user signs out, also those under way', async () => {
    const { client, channel } = await said();
    const sent = channel.send('More');
    const run = await stage.bot.run('More');
    await client.signOut();
    expect((await sent)?.state).toBe('stopped');
    await isOf(channel, null);
    expect(allOf(channel)).toEqual([]);
    await run.gone;
  });

  test('stay when the same user signs in again after the session has ended', async () => {
    const { client, channel } = await said();
    await endSession(stage.relay);
    const answer = await channel.send('More');
    expect(answer?.error?.code).toBe('unauthenticated');
    await isOf(channel, null);
    await client.signIn(USER.name, USER.password);
    await isOf(channel, USER);
    expect(allOf(channel)).toEqual(['user: Hello', 'bot: You', 'user: More', 'bot:  (error)']);
  });

  test('stay while somebody listens, however often another stops', async () => {
    const client = await stage.signedIn();
    const channel = createChannel(client, { expert: { gcMs: 30 } });
    const leave = channel.subscribe(() => {});
    const stay = channel.subscribe(() => {});
    leave();
    leave();
    await aChannelWasDropped(client, 30);
    expect(createChannel(client)).toBe(channel);
    stay();
    await aChannelWasDropped(client, 30);
    expect(createChannel(client)).not.toBe(channel);
  });

  test('go when nobody listens and nothing runs for gcMs', async () => {
    const client = await stage.signedIn();
    const channel = createChannel(client, { expert: { gcMs: 30 } });
    const leave = channel.subscribe(() => {});
    const sent = channel.send('Hello');
    const run = await stage.bot.run('Hello');
    leave();
    await aChannelWasDropped(client, 30);
    expect(createChannel(client)).toBe(channel);
    run.answer('You');
    await sent;
    expect(allOf(channel)).toHaveLength(2);
    await until(() => allOf(channel).length === 0);
    expect(createChannel(client)).not.toBe(channel);
  });
});
