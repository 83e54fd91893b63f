/// <reference lib="dom" />
import type { Config } from '../../../src/config/config.ts';
import { startBotService } from '../../../src/service/bot-service.ts';
import { type ChatFront, openChatFront } from '../faults/chat-front.ts';
import { startFakeLoadBalancer } from '../faults/fake-load-balancer.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../relay/relay.ts';
import { signIn, texts } from './chat-page.ts';
import type { Chromium } from './chromium.ts';

export interface JoiningPages {
  /** Opens the chat page at a relay with these operations, with a user who is signed in. */
  open(
    chromium: Chromium,
    operations: Config['operations'],
    environment?: Record<string, string>,
  ): Promise<JoiningPage>;
  close(): Promise<void>;
}

export interface JoiningPage extends ChatFront {
  /** How many messages the bot service has got with this text, resumptions included. */
  posts(): number;
  /** All messages and answers that the page shows. */
  texts(): Promise<string[]>;
  /** What the tab keeps of messages under way. */
  kept(): Promise<string | null>;
}

/** The demo's bot service, which says a word each 50 ms, and relays before it with joining on. */
export async function startJoiningPages(): Promise<JoiningPages> {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 50 }, limit: 1000 });
  const closers: (() => Promise<void>)[] = [service.close];
  const close = async () => {
    for (const one of closers.splice(0).reverse()) await one();
  };
  return {
    close,
    async open(chromium, operations, environment = {}) {
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
        posts: () => posts,
        texts: () => texts(chat.page),
        kept: () => chat.page.evaluate(() => sessionStorage.getItem('bot-relay-messages')),
      };
    },
  };
}
