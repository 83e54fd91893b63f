import type { Config } from '../config/config.ts';
import { demoBots } from '../demo/demo-bots.ts';
import { DEMO_USER, startDemo } from '../demo/start-demo.ts';
import type { DemoChat } from '../page/bot-chat.ts';
import type { Dependencies } from '../routes/dependencies.ts';

/** The parts that only the demo has. The caller closes them. */
export interface DemoParts extends Pick<Dependencies, 'upstreamUrl'> {
  readonly chat: DemoChat;
  close(): Promise<void>;
}

/** Starts the embedded bot service. */
export async function startDemoParts(config: Config): Promise<DemoParts> {
  const service = await startDemo(config.upstream.apiKeys);
  const chat = { bots: demoBots(config.bots), user: DEMO_USER };
  return { upstreamUrl: service.url, chat, close: service.close };
}
