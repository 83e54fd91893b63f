import { startBotService } from '../../src/demo/bot-service.ts';
import { type ChatFront, openChatFront } from './chat-front.ts';
import { signIn } from './chat-page.ts';
import { cheapHash } from './cheap-hash.ts';
import type { Chromium } from './chromium.ts';
import { startFakeLoadBalancer } from './fake-load-balancer.ts';
import { freshFolder, inFrontOf, startProcess } from './process.ts';
import { eventually } from './redis-process.ts';
import { CANARY, USER } from './relay.ts';

export interface KillablePage extends ChatFront {
  /** How many messages the bot service has got. */
  posts(): number;
  /** Kills the relay, or ends it with another signal; another one in its place gets requests once it is ready. */
  restart(signal?: NodeJS.Signals): Promise<void>;
  close(): Promise<void>;
}

/** Opens the chat page at a relay in a process of its own, with a user who is signed in. `stopProcesses` ends the relay. */
export async function openKillable(
  chromium: Chromium,
  environment: Readonly<Record<string, string>>,
): Promise<KillablePage> {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 50 }, limit: 1000 });
  let posts = 0;
  const counter = await startFakeLoadBalancer({
    answer({ method, url }) {
      if (method === 'POST' && url?.endsWith('/message/sse')) posts += 1;
      return false;
    },
  });
  counter.forwardTo(Number(service.url.port));
  const folder = freshFolder({
    'users.json': JSON.stringify({ users: [{ name: USER.name, hash: cheapHash(USER.password) }] }),
  });
  const settings = { ...inFrontOf(counter.url), BOTS: 'demo/echo', OPERATIONS: 'message', CHAT_PAGE: 'on' };
  const start = () => startProcess({ folder, environment: { ...settings, ...environment } });
  let relay = start();
  const chat = await openChatFront(chromium, await relay.listening());
  await signIn(chat.page, USER);
  return {
    ...chat,
    posts: () => posts,
    async restart(signal = 'SIGKILL') {
      relay.signal(signal);
      await relay.exited;
      relay = start();
      const port = await relay.listening();
      await untilReady(port);
      chat.front.forwardTo(port);
    },
    async close() {
      for (const one of [chat.front, counter, service]) await one.close();
    },
  };
}

/** Resolves when a relay can reach all that it needs, as a load balancer would ask it. */
const untilReady = (port: number) =>
  eventually(async () => {
    const { ok } = await fetch(`http://127.0.0.1:${port}/readyz`);
    if (!ok) throw new Error('The relay is not ready.');
  });
