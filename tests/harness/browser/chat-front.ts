/// <reference lib="dom" />
import { EventEmitter, once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Config } from '../../../src/config/config.ts';
import { startBotService } from '../../../src/service/bot-service.ts';
import { startFakeLoadBalancer } from '../faults/fake-load-balancer.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../relay/relay.ts';
import { signIn, texts } from './chat-page.ts';
import type { Chromium } from './chromium.ts';

export type ChatFront = Awaited<ReturnType<typeof openChatFront>>;

/**
 * Opens the chat page of the relay at `port` (`CHAT_PAGE=on`) in a tab of a new profile, at an origin of its own, which is
 * a load balancer. The caller closes `front`.
 */
export async function openChatFront(chromium: Chromium, port: number) {
  const sockets = new Set<Socket>();
  const arrivals = new EventEmitter();
  /** Each call of a bot, as `METHOD operation`. */
  const calls: string[] = [];
  const front = await startFakeLoadBalancer({
    answer({ method, url = '', socket }, res) {
      const [, operation] = /\/bot-provider\/[^/]+\/([^?]+)/.exec(url) ?? [];
      if (operation === undefined) return false;
      sockets.add(socket);
      calls.push(`${method} ${operation}`);
      arrivals.emit(operation, res);
      return false;
    },
  });
  front.forwardTo(port);
  const profile = await chromium.browser.newContext();
  /** Opens the page in another tab of the same profile. */
  const openTab = () => chromium.open(`${front.url}/chat`, profile);
  // Nobody else could close it then.
  const tab = await openTab().catch(async (error) => {
    await front.close();
    throw error;
  });
  return {
    ...tab,
    ...{ profile, front, calls, openTab },
    /** Cuts all connections on which the page has called a bot. */
    cut() {
      for (const socket of sockets) socket.destroy();
      sockets.clear();
    },
    /** Resolves when the next call of this operation has arrived here, with its answer, which has not begun. */
    called: async (operation: string): Promise<ServerResponse> => (await once(arrivals, operation))[0],
  };
}

/** Stands before the bot service at `url`, and counts the messages that it gets, resumptions included. */
export async function countMessages({ port }: URL) {
  let posts = 0;
  const counter = await startFakeLoadBalancer({
    answer({ method, url }) {
      if (method === 'POST' && url?.endsWith('/message/sse')) posts += 1;
      return false;
    },
  });
  counter.forwardTo(Number(port));
  return { ...counter, posts: () => posts };
}

export type JoiningPages = Awaited<ReturnType<typeof startJoiningPages>>;

/** The demo's bot service, which says a word each 50 ms, and relays before it with joining on. */
export async function startJoiningPages() {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 50 }, limit: 1000 });
  const closers: (() => Promise<void>)[] = [service.close];
  const close = async () => {
    for (const one of closers.splice(0).reverse()) await one();
  };
  return {
    close,
    /** Opens the chat page at a relay with these operations, with a user who is signed in. */
    async open(
      chromium: Chromium,
      operations: Config['operations'],
      environment: Record<string, string> = {},
    ) {
      const counter = await countMessages(service.url);
      closers.push(counter.close);
      const relay: TestRelay = await startRelay(counter.url, {
        ...{ BOTS: 'demo/echo', OPERATIONS: operations.join(), CHAT_PAGE: 'on', JOIN: 'on', ...environment },
      });
      closers.push(relay.close);
      const chat = await openChatFront(chromium, relay.port);
      closers.push(chat.front.close);
      await signIn(chat.page, USER);
      return {
        ...chat,
        /** How many messages the bot service has got, resumptions included. */
        posts: counter.posts,
        texts: () => texts(chat.page),
        /** What the tab keeps of messages under way. */
        kept: () => chat.page.evaluate(() => sessionStorage.getItem('bot-relay-messages')),
      };
    },
  };
}
