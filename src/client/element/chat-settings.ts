import { answerOf, caller } from '../transport/calls.ts';
import type { DemoUser, SignInMode } from './sign-in.ts';
import type { Words } from './words/words.ts';

/** The settings of the relay for its chats. */
export interface ChatSettings {
  readonly signIn: SignInMode;
  /** The groups of operations that the relay has enabled. */
  readonly operations: readonly string[];
  /** Bots to talk with, each `namespace/name`: the user chooses if the element names none. */
  readonly bots?: readonly string[];
  /** Only in the demo. */
  readonly user?: DemoUser;
  readonly title?: string;
  readonly logo?: string;
  readonly suggestions?: readonly string[];
  /** Those of each bot that has some. Only in the demo. */
  readonly botSuggestions?: Readonly<Record<string, readonly string[]>>;
  /** Words in place of the element's own. */
  readonly words?: Partial<Words>;
}

/** Asks the relay at `base` how its users sign in, and what it offers. @throws RelayError */
export function settingsOf(base: string): Promise<ChatSettings> {
  return answerOf<ChatSettings>(caller({ baseUrl: base })('/client/bot-chat.json'));
}
