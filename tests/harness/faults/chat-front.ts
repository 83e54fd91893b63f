import { EventEmitter, once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { BrowserContext } from 'playwright-core';
import type { Chromium, Tab } from '../browser/chromium.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from './fake-load-balancer.ts';

/** The chat page in a tab of a new profile, at an origin of its own. */
export interface ChatFront extends Tab {
  readonly profile: BrowserContext;
  readonly front: FakeLoadBalancer;
  /** Each call of a bot, as `METHOD operation`. */
  readonly calls: string[];
  /** Cuts all connections on which the page has called a bot. */
  cut(): void;
  /** Resolves when the next call of this operation of a bot has arrived here, with its answer, which has not begun. */
  called(operation: string): Promise<ServerResponse>;
  /** Opens the page in another tab of the same profile. */
  openTab(): Promise<Tab>;
}

/** Opens the chat page of the relay at `port` (`CHAT_PAGE=on`) through a load balancer. The caller closes `front`. */
export async function openChatFront(chromium: Chromium, port: number): Promise<ChatFront> {
  const sockets = new Set<Socket>();
  const arrivals = new EventEmitter();
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
  const openTab = () => chromium.open(`${front.url}/chat`, profile);
  // Nobody else could close it then.
  const tab = await openTab().catch(async (error) => {
    await front.close();
    throw error;
  });
  return {
    ...tab,
    ...{ profile, front, calls, openTab },
    cut() {
      for (const socket of sockets) socket.destroy();
      sockets.clear();
    },
    called: async (operation) => (await once(arrivals, operation))[0],
  };
}
