import type { Channel } from '../channel/channel-types.ts';
import type { BotClient } from '../session/bot-client.ts';
import type { Looks } from './avatar.ts';
import type { Chats } from './chats.ts';
import type { Drafts } from './kept-drafts.ts';
import type { DemoUser, SignInMode } from './sign-in.ts';
import type { Language } from './words/words.ts';

/** A text that a user has written and not sent. */
export interface Draft {
  readonly text: string;
  /** The id of the user. */
  readonly user: string;
}

/** What a chat needs. */
export interface ChatDependencies {
  readonly language: Language;
  readonly client: Pick<BotClient, 'session' | 'signIn' | 'signInAsGuest' | 'signInUrl' | 'signOut'>;
  readonly channel: Channel;
  /** The chats of this browser; undefined if the page has named a conversation. */
  readonly chats?: Chats | undefined;
  /** The bot, as `namespace/name`, and those that the user may choose. */
  readonly bot: string;
  readonly bots: readonly string[];
  readonly onBot: (bot: string) => void;
  /** What this tab keeps of texts that were not sent. */
  readonly drafts?: Drafts | undefined;
  /** The text that was written before the user chose the bot. */
  readonly draft?: Draft | undefined;
  /** The user whose name and password are filled in, in the demo. */
  readonly user?: DemoUser | undefined;
  readonly mode: SignInMode;
  readonly looks: Looks;
  readonly hasFiles: boolean;
  /** Whether the bot service can forget a conversation. */
  readonly hasChat: boolean;
}
