/**
 * Defines the element `<bot-chat>`.
 * @module bot-relay-client/element
 */
import { BotChatElement, defineBotChat } from './bot-chat-element.ts';

export { BotChatElement };

defineBotChat('');
