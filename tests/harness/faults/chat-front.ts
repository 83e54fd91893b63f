import { EventEmitter, once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Chromium } from '../browser/chromium.ts';
import { startFakeLoadBalancer } from './fake-load-balancer.ts';

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
