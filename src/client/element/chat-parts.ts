import type { BotClient } from '../bot-client.ts';
import type { Channel } from '../channel-types.ts';
import type { SignInMode } from './sign-in.ts';
import type { Language } from './words.ts';

/** What a chat needs. */
export interface ChatParts {
  readonly language: Language;
  readonly client: Pick<BotClient, 'session' | 'signIn' | 'signInAsGuest' | 'signInUrl' | 'signOut'>;
  readonly channel: Channel;
  readonly mode: SignInMode;
  /** Whether the relay is not on the page's own origin. */
  readonly isOtherOrigin: boolean;
  /** The name of the bot, as it is shown. */
  readonly botName: string;
  readonly suggestions: readonly string[];
  readonly hasFiles: boolean;
  /** Whether the bot service can forget a conversation. */
  readonly hasChat: boolean;
}
