import type { BotClientOptions } from './bot-calls.ts';
import { baseOf } from './calls.ts';
import { type KeptList, keptList } from './kept.ts';
import { randomId } from './random-id.ts';
import { botKey } from './unfinished.ts';

const KEY = 'bot-relay-channels';

/** The ids of the default channels that the browser keeps, for one user at a time. */
export interface DefaultChannels {
  /** The id of this user's channel with the bot, and whether it was made now. With `isNew`, it is made anew. */
  readonly idFor: (user: string, isNew?: boolean) => { readonly id: string; readonly isNew: boolean };
  /** Forgets those of this relay's users, or of all but one. */
  readonly forget: (exceptOf?: string) => void;
}

/** Opens what the browser keeps. A guest's is kept in the tab. */
export function defaultChannels(options: BotClientOptions): DefaultChannels {
  const bot = botKey(options);
  const relay = `${baseOf(options)} `;
  const ofTab = keptList(KEY, options);
  const ofBrowser = keptList(KEY, { ...options, isShared: true });
  const forget = (list: KeptList, exceptOf?: string) => {
    const rows = list.all();
    const own = rows.filter(([, user, one = '']) => user === exceptOf || !one.startsWith(relay));
    if (own.length < rows.length) list.set(own);
  };
  return {
    idFor(user, isNew = false) {
      const list = user.startsWith('guest:') ? ofTab : ofBrowser;
      const rows = list.all();
      const [, , , kept] = rows.find(([, of, one]) => of === user && one === bot) ?? [];
      const id = (!isNew && kept) || randomId();
      list.set([...rows.filter(([, , one]) => one !== bot), [Date.now(), user, bot, id]]);
      return { id, isNew: id !== kept };
    },
    forget(exceptOf) {
      for (const list of [ofTab, ofBrowser]) forget(list, exceptOf);
    },
  };
}
