import type { MessageName } from './bot-calls.ts';
import { internalsOf, ofClient } from './client-internals.ts';
import { botKey, keptList, MESSAGES } from './kept.ts';

/** The names of the messages whose answers have not ended, also from before a reload of the page. */
export interface Unfinished {
  readonly add: (name: MessageName) => void;
  readonly remove: (name: MessageName) => void;
  /** The names in a conversation with this bot, the oldest first. */
  readonly list: (customChannelId: string) => MessageName[];
}

const names = new WeakMap<object, Unfinished>();

/** The names of the client's messages whose answers have not ended. */
export function unfinished(client: EventTarget): Unfinished {
  return ofClient(names, client, () => newNames(client));
}

function newNames(client: EventTarget): Unfinished {
  const { options, tracker } = internalsOf(client);
  const bot = botKey(options);
  const { all, set } = keptList(MESSAGES, options);
  // The next user of this tab must not ask for their answers.
  client.addEventListener('signed-out', () => set([]));
  const others = ({ customChannelId, customMessageId }: MessageName) =>
    all().filter(([, , ...name]) => String(name) !== String([bot, customChannelId, customMessageId]));
  return {
    add(name) {
      const row = [Date.now(), tracker.user(), bot, name.customChannelId, name.customMessageId] as const;
      set([...others(name), row]);
    },
    remove: (name) => set(others(name)),
    list: (channel) =>
      all()
        .filter(([, , itsBot, itsChannel]) => itsBot === bot && itsChannel === channel)
        .map(([, , , customChannelId = '', customMessageId = '']) => ({ customChannelId, customMessageId })),
  };
}
