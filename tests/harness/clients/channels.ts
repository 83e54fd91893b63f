import { afterEach, beforeEach, expect } from '@jest/globals';
import { textOf } from '../../../src/client/channel/channel-state.ts';
import type { Channel, ChannelMessage, ChannelOptions } from '../../../src/client/channel/channel-types.ts';
import { createChannel } from '../../../src/client/channel/create-channel.ts';
import type { BotClient } from '../../../src/client/session/bot-client.ts';
import { startBotService } from '../../../src/service/bot-service.ts';
import { sleep } from '../clock/sleep.ts';
import { until } from '../clock/until.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay, USER } from '../relay/relay.ts';
import { startBotRuns } from '../service/bot-runs.ts';
import { startRawUpstream } from '../service/raw-upstream.ts';
import { jsonAnswer } from './suspend.ts';
import { type TestOptions, testClient } from './test-client.ts';

const unhandled: unknown[] = [];
const note = (reason: unknown) => void unhandled.push(reason);

/** Has each test of the file fail that leaves an unhandled rejection. */
export function refuseUnhandledRejections(): void {
  beforeEach(() => void process.on('unhandledRejection', note));
  afterEach(async () => {
    await sleep(0);
    process.off('unhandledRejection', note);
    expect(unhandled.splice(0)).toEqual([]);
  });
}

/**
 * Resolves when a channel has been dropped that nobody has held from now on: by then, one with the same `gcMs` that was
 * left before has been dropped, too.
 */
export async function aChannelWasDropped(client: BotClient, gcMs: number): Promise<void> {
  const options = { id: 'to be dropped', expert: { gcMs } };
  const channel = createChannel(client, options);
  channel.subscribe(() => {})();
  await until(() => createChannel(client, options) !== channel);
}

/** What a message shows: who says what, and its state unless it is `done`. */
export function shown({ role, state, ...message }: ChannelMessage): string {
  return `${role === 'user' ? 'user' : 'bot'}: ${textOf(message)}${state === 'done' ? '' : ` (${state})`}`;
}

export const allOf = (channel: Channel) => channel.getSnapshot().messages.map(shown);

export const isReady = (channel: Channel) => until(() => channel.getSnapshot().status === 'ready');
export const isLoaded = (channel: Channel) => until(() => !channel.getSnapshot().isLoading);
/** The channel knows that this user, or nobody, is signed in. */
export const isOf = (channel: Channel, user: typeof USER | null) =>
  until(() => {
    const { session } = channel.getSnapshot();
    return user ? session?.user.name === user.name : session === null;
  });
/** Ends the session of `USER` at the relay, of which no client is told. */
export async function endSession(relay: TestRelay): Promise<void> {
  const headers = { Cookie: await relay.signIn() };
  await fetch(`${relay.url}/auth/logout-all`, { method: 'POST', headers });
}

/** What a message says, with who says it and its state. */
const lineOf = (message: ChannelMessage) =>
  `${message.role === 'user' ? 'user' : 'bot'} ${message.state}: ${textOf(message)}`;

/** A channel that `USER` sees, and its messages as lines. */
export async function openTalk(client: BotClient, options: ChannelOptions) {
  const channel = createChannel(client, options);
  const leave = channel.subscribe(() => {});
  await client.signIn(USER.name, USER.password);
  await until(() => channel.getSnapshot().session?.user.name === USER.name);
  const { signIn, signOut } = client;
  const { getSnapshot: snapshot } = channel;
  const shown = () => snapshot().messages.map(lineOf);
  return { ...channel, snapshot, shown, leave, signIn, signOut };
}

/** A relay in front of a bot service, and clients of its users. */
export type ChannelStage = Awaited<ReturnType<typeof stageAt>>;

/** Starts a relay in front of a bot service whose runs the test answers. */
export async function startRunsStage(environment: Record<string, string> = {}) {
  const bot = await startBotRuns();
  const names = { namespace: 'acme', botProviderName: 'helper' };
  return { ...(await stageAt(bot.upstream, names, environment)), bot };
}

/** Starts a relay in front of the demo's bot service, for this bot of it. */
export async function startDemoStage(botProviderName: string, environment: Record<string, string> = {}) {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 20 }, limit: 1000 });
  const bot = { namespace: 'demo', botProviderName };
  return stageAt(service, bot, { BOTS: `demo/${botProviderName}`, ...environment });
}

/** Starts a relay in front of a bot service that has each conversation, and answers all other calls with `onRequest`. */
export async function startHistory(
  onRequest: Parameters<typeof startRawUpstream>[0],
  environment: Record<string, string> = {},
): Promise<{ readonly relay: TestRelay; close(): Promise<void> }> {
  const upstream = await startRawUpstream((socket, request) => {
    if (!request.requestLine.includes('/metadata')) onRequest(socket, request);
    else socket.write(jsonAnswer('200 OK', { data: {} }));
  });
  const relay = await startRelay(upstream.url, environment);
  const close = async () => {
    await relay.close();
    await upstream.close();
  };
  return { relay, close };
}

async function stageAt(
  service: { readonly url: string | URL; close(): Promise<void> },
  bot: { readonly namespace: string; readonly botProviderName: string },
  environment: Record<string, string>,
) {
  const relay = await startRelay(service.url, environment);
  const leaves: (() => void)[] = [];
  /** A client of this user, who is signed in. */
  const signedIn = async (options?: Partial<TestOptions>, user = USER): Promise<BotClient> => {
    const client = testClient({ baseUrl: relay.url, ...bot, ...options });
    await client.signIn(user.name, user.password);
    return client;
  };
  return {
    relay,
    signedIn,
    /** A channel that is subscribed to and shows who is signed in. */
    async channel(options?: ChannelOptions, clientOptions?: Partial<TestOptions>): Promise<Channel> {
      const channel = createChannel(await signedIn(clientOptions), options);
      leaves.push(channel.subscribe(() => {}));
      await until(() => channel.getSnapshot().session?.user.name === USER.name);
      return channel;
    },
    /** Subscribes to no channel any more. */
    leave() {
      for (const leave of leaves.splice(0)) leave();
    },
    async close() {
      this.leave();
      await relay.close();
      await service.close();
    },
  };
}

export { OTHER_USER, USER };
