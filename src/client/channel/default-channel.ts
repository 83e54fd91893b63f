import type { BotSettings } from '../session/bot-calls.ts';
import { botKey, CHANNELS, CHATS, type KeptList, type KeptOptions, keptList } from '../session/kept.ts';
import { baseOf, randomId } from '../transport/calls.ts';

const MAX_ROWS = 1_000;

/** The ids of the default channels that the browser keeps. */
export interface DefaultChannels {
  /** The id of the user's channel with the bot, and whether it is new. With `isNew`, it is replaced by a new one. */
  readonly idFor: (user: string, isNew?: boolean) => { readonly id: string; readonly isNew: boolean };
  /** Makes this conversation the default one. */
  readonly choose: (user: string, id: string) => void;
}

const listOf = (key: string, options: KeptOptions, isShared: boolean) =>
  keptList(key, { ...options, isShared, max: MAX_ROWS });
const isGuest = (user: string) => user.startsWith('guest:');

/** The list of a user's chats. The names in a row: bot, id, title. A guest's list is kept in the tab. */
export function chatRows(options: KeptOptions, user: string): KeptList {
  return listOf(CHATS, options, !isGuest(user));
}

/** The one of `bots` that was opened last in this tab or, if there is none, in another tab. */
export function lastBot(
  options: Pick<BotSettings, 'baseUrl' | 'ids'>,
  bots: readonly string[],
): string | undefined {
  const rows = [true, false].flatMap((isShared) => listOf(CHANNELS, options, isShared).all());
  return rows.reverse().flatMap(([, , key]) => bots.filter((bot) => key === `${baseOf(options)} ${bot}`))[0];
}

/** The default channels of a bot. They are kept in the tab and, unless the user is a guest, for later tabs. */
export function defaultChannels(options: BotSettings): DefaultChannels {
  const bot = botKey(options);
  const idsOf = (user: string) =>
    [false, ...(isGuest(user) ? [] : [true])].map((shared) => listOf(CHANNELS, options, shared));
  function choose(user: string, id: string): void {
    for (const list of idsOf(user))
      list.set([...list.all().filter(([, , one]) => one !== bot), [Date.now(), user, bot, id]]);
  }
  return {
    idFor(user, isNew = false) {
      const rows = idsOf(user).flatMap((list) => list.all());
      const [, , , kept] = rows.find(([, of, one]) => of === user && one === bot) ?? [];
      const id = (!isNew && kept) || randomId();
      choose(user, id);
      return { id, isNew: id !== kept };
    },
    choose,
  };
}
