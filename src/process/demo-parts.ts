import type { Config } from '../config/config.ts';
import { demoBots } from '../demo/demo-bots.ts';
import { startDemo } from '../demo/start-demo.ts';
import { chatPages } from '../page/chat-page.ts';
import type { Parts } from '../routes/parts.ts';

/** The parts that only the demo has. The caller closes them. */
export interface DemoParts extends Pick<Parts, 'upstreamUrl' | 'pages'> {
  close(): Promise<void>;
}

/** Starts the embedded bot service and reads the chat page. */
export async function startDemoParts(config: Config): Promise<DemoParts> {
  const service = await startDemo(config.upstream.apiKeys);
  const pages = chatPages({ ...config, bots: demoBots(config.bots) });
  return { upstreamUrl: service.url, pages, close: service.close };
}
