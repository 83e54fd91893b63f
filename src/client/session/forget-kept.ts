import { baseOf } from '../transport/calls.ts';
import { type KeptOptions, keptList } from './kept.ts';

/** The lists of default channels, of chats, and of messages under way. A row of each names its user, and then the bot. */
export const CHANNELS = 'bot-relay-channels';
export const CHATS = 'bot-relay-chats';
export const MESSAGES = 'bot-relay-messages';

/** Where something is kept, and of which relay. */
export type KeptOfRelay = KeptOptions & { readonly baseUrl: string };

/** Forgets what the browser keeps of the users of this relay, but for those that `stays` accepts. */
export function forgetKept(
  options: KeptOfRelay,
  stays: (user: string | null) => boolean = () => false,
): void {
  const relay = `${baseOf(options)} `;
  for (const key of [CHANNELS, CHATS, MESSAGES])
    for (const isShared of [false, true]) {
      const { all, set } = keptList(key, { ...options, isShared, max: Infinity });
      const rows = all();
      const own = rows.filter(([, user, bot = '']) => stays(user) || !bot.startsWith(relay));
      if (own.length < rows.length) set(own);
    }
}
