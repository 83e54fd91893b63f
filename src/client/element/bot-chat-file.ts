import { defineBotChat } from './bot-chat-element.ts';

// The relay serves this file as `client/bot-chat.js`.
defineBotChat(new URL('..', import.meta.url).href);
