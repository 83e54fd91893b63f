import type { BotSettings } from '../../../src/client/session/bot-calls.ts';
import { type BotClient, createBotClient } from '../../../src/client/session/bot-client.ts';

/** The options of a client in one list, those of `expert` beside the others. */
export type TestOptions = Omit<BotSettings, 'baseUrl'> & { readonly baseUrl?: string };

/** A client that keeps the cookies of the relay, unless the options say otherwise. */
export function testClient({ silenceMs, fetch, ...options }: TestOptions): BotClient {
  const { cookies, ...others } = { cookies: 'keep' as const, ...options };
  return createBotClient({ ...others, expert: { cookies, silenceMs, fetch } });
}
