/**
 * Defines the element `<bot-chat>`.
 * @module bot-relay-client/element
 */
import { BotChatElement, defineBotChat } from './bot-chat-element.ts';

export type { BotChatEventMap } from './bot-chat-events.ts';

export { BotChatElement };

defineBotChat('');
