/// <reference lib="dom" />
import type { Config } from '../../../src/config/config.ts';
import { startBotService } from '../../../src/service/bot-service.ts';
import { openChatFront } from '../faults/chat-front.ts';
import { startFakeLoadBalancer } from '../faults/fake-load-balancer.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../relay/relay.ts';
import { signIn, texts } from './chat-page.ts';
import type { Chromium } from './chromium.ts';

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
      let posts = 0;
      const counter = await startFakeLoadBalancer({
        answer({ method, url }) {
          if (method === 'POST' && url?.endsWith('/message/sse')) posts += 1;
          return false;
        },
      });
      closers.push(counter.close);
      counter.forwardTo(Number(service.url.port));
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
        posts: () => posts,
        texts: () => texts(chat.page),
        /** What the tab keeps of messages under way. */
        kept: () => chat.page.evaluate(() => sessionStorage.getItem('bot-relay-messages')),
      };
    },
  };
}
