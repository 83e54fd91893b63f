import { BotChatElement, defineBotChat } from './bot-chat-element.ts';

export { BotChatElement };

defineBotChat('');
