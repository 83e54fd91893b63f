import type { BotClientOptions } from './bot-calls.ts';
import { directConnect } from './direct-connect.ts';
import { type BotClient, relayClient } from './relay-client.ts';

export type {
  BotEvent,
  BotMessage,
  CalledTool,
  EventHead,
  Facts,
  Guards,
  KnownEvent,
  PendingCall,
  TextMessage,
  Tool,
  UnknownEvent,
} from '../transport/bot-event.ts';
export type { MessageState, MessageStream, OnState, SendOptions } from '../transport/message-stream.ts';
export {
  type ClientErrorCode,
  RelayError,
  type RelayErrorFields,
  type Retryable,
} from '../transport/relay-error.ts';
export type { BotClientOptions } from './bot-calls.ts';
export type { MessageStore } from './kept.ts';
export type { BotClient } from './relay-client.ts';
export type { Session } from './session-tracker.ts';

/**
 * A client of one bot, for browsers and Node.js.
 * @throws TypeError if `baseUrl` is no address, or if `apiKey` is given in a browser
 */
export function createBotClient(options: BotClientOptions): BotClient {
  return relayClient(options.apiKey === undefined ? options : directConnect(options));
}
