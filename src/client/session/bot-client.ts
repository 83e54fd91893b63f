import { type BotClientOptions, botSettings } from './bot-client-options.ts';
import { directConnect } from './direct-connect.ts';
import { type BotClient, relayClient } from './relay-client.ts';

export type { BotEvent, Facts, Guards, KnownEvent, UnknownEvent } from '../transport/bot-event.ts';
export type { MessageState, MessageStream, OnState, SendOptions } from '../transport/message-stream.ts';
export { type ClientErrorCode, RelayError, type Retryable } from '../transport/relay-error.ts';
export type { BotClientOptions } from './bot-client-options.ts';
export type { IdStorage } from './kept.ts';
export type { BotClient } from './relay-client.ts';
export type { Session } from './session-tracker.ts';

/**
 * A client of one bot, for browsers and Node.js: `createBotClient({ bot: 'demo/echo' })`.
 * @throws TypeError if the options name no bot, `baseUrl` is no address, or `apiKey` is given in a browser
 */
export function createBotClient(options: BotClientOptions): BotClient {
  const settings = botSettings(options);
  return relayClient(settings.apiKey === undefined ? settings : directConnect(settings));
}
