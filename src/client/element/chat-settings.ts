import { answerOf, caller } from '../transport/calls.ts';
import type { Looks } from './avatar.ts';
import { botName } from './bot-name.ts';
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

/** How a chat with `bot` looks: by the attributes of its element, else by the settings of the relay. */
export function looksOf(
  element: Element,
  { title, logo, suggestions, botSuggestions }: ChatSettings,
  { bot, bots }: { readonly bot: string; readonly bots: readonly string[] },
): Looks {
  const lines = element.getAttribute('suggestions')?.split('\n');
  return {
    title: element.getAttribute('heading') ?? title ?? botName(bot, bots),
    logo: element.getAttribute('logo') ?? logo,
    placeholder: element.getAttribute('placeholder') ?? undefined,
    suggestions:
      lines?.map((line) => line.trim()).filter(Boolean) ?? suggestions ?? botSuggestions?.[bot] ?? [],
  };
}
