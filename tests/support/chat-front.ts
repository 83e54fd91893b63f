import { EventEmitter, once } from 'node:events';
import type { Socket } from 'node:net';
import type { Request, Response } from 'express';
import type { BrowserContext } from 'playwright-core';
import { chatPages } from '../../src/page/chat-page.ts';
import type { Chromium, Tab } from './chromium.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from './fake-load-balancer.ts';

/** The chat page in a tab of a new profile, at an origin of its own. */
export interface ChatFront extends Tab {
  readonly profile: BrowserContext;
  readonly front: FakeLoadBalancer;
  /** Cuts all connections on which the page has called a bot. */
  cut(): void;
  /** Resolves when the next call of this operation of a bot has arrived here. */
  called(operation: string): Promise<unknown>;
  /** Opens the page in another tab of the same profile. */
  openTab(): Promise<Tab>;
}

/** Serves the chat page in front of the relay at `port`, and opens it. The caller closes `front`. */
export async function openChatFront(
  chromium: Chromium,
  port: number,
  settings: Omit<Parameters<typeof chatPages>[0], 'basePath'>,
): Promise<ChatFront> {
  const pages = new Map(chatPages({ ...settings, basePath: '' }).map(({ path, handler }) => [path, handler]));
  const sockets = new Set<Socket>();
  const calls = new EventEmitter();
  const front = await startFakeLoadBalancer({
    answer(req, res) {
      const [, operation] = /\/bot-provider\/[^/]+\/([^?]+)/.exec(req.url ?? '') ?? [];
      if (operation !== undefined) {
        sockets.add(req.socket);
        calls.emit(operation);
      }
      const handler = pages.get(req.url ?? '');
      handler?.(req as Request, res as Response);
      return handler !== undefined;
    },
  });
  front.forwardTo(port);
  const profile = await chromium.browser.newContext({ acceptDownloads: true });
  const openTab = () => chromium.open(`${front.url}/`, profile);
  const cut = () => {
    for (const socket of sockets) socket.destroy();
    sockets.clear();
  };
  const called = (operation: string) => once(calls, operation);
  return { ...(await openTab()), profile, front, cut, called, openTab };
}
