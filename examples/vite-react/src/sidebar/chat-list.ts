/** A chat in the list of this browser. The bot service has its messages, and cannot list chats itself. */
export interface Chat {
  readonly id: string;
  readonly title: string;
  /** When its last message was sent, in ms since 1970. */
  readonly at: number;
}

const MAX_CHATS = 100;
const TITLE_LENGTH = 60;

/** Where the list of a user is kept. */
export const keyOf = (user: string) => `my-chats ${user}`;

/** The list of a user, the newest first. What another program has written there is no list. */
export function loadChats(user: string): readonly Chat[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(keyOf(user)) ?? '[]');
    return Array.isArray(kept) ? kept.filter(isChat) : [];
  } catch {
    return [];
  }
}

function isChat(value: Partial<Chat> | null): value is Chat {
  return typeof value?.id === 'string' && typeof value.title === 'string' && typeof value.at === 'number';
}

export function saveChats(user: string, chats: readonly Chat[]): void {
  try {
    localStorage.setItem(keyOf(user), JSON.stringify(chats.slice(0, MAX_CHATS)));
  } catch {
    // Without a storage, the list lasts as long as the page.
  }
}

/** The first line of a message, without the signs of Markdown. */
export function titleOf(text: string): string {
  const [line = ''] = text.trim().split('\n');
  const words = line
    .replace(/[*_`#>~|]/g, '')
    .trim()
    .replace(/:$/, '');
  return words.length > TITLE_LENGTH ? `${words.slice(0, TITLE_LENGTH).trimEnd()} …` : words;
}

/** The chats by the day of their last message. */
export function byDay(chats: readonly Chat[]): readonly (readonly [string, readonly Chat[]])[] {
  const today = new Date().setHours(0, 0, 0, 0);
  const dayOf = ({ at }: Chat) => {
    if (at >= today) return 'Today';
    return at >= today - 7 * 86_400_000 ? 'Last seven days' : 'Earlier';
  };
  return Object.entries(Object.groupBy(chats, dayOf)).map(([day, those = []]) => [day, those]);
}
