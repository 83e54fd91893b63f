import { startBotService } from '../../../src/service/bot-service.ts';
import { signIn } from '../browser/chat-page.ts';
import type { Chromium } from '../browser/chromium.ts';
import { type ChatFront, openChatFront } from '../faults/chat-front.ts';
import { startFakeLoadBalancer } from '../faults/fake-load-balancer.ts';
import { cheapHash } from './cheap-hash.ts';
import { freshFolder, inFrontOf, startProcess, untilReady } from './process.ts';
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
  /** The port of the relay, once it is ready. */
  const ready = async () => {
    const port = await relay.listening();
    await untilReady(port);
    return port;
  };
  const parts: { close(): Promise<void> }[] = [service, counter];
  const close = async () => {
    for (const one of parts.splice(0).reverse()) await one.close();
  };
  async function restart({ front }: ChatFront, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    relay.signal(signal);
    await relay.exited;
    relay = start();
    front.forwardTo(await ready());
  }
  try {
    const chat = await openChatFront(chromium, await ready());
    parts.push(chat.front);
    await signIn(chat.page, USER);
    return { ...chat, posts: () => posts, restart: (signal) => restart(chat, signal), close };
  } catch (error) {
    await close();
    throw error;
  }
}
