import { baseOf } from './calls.ts';
import { type ClientParts, partsOf } from './client-parts.ts';
import { MESSAGES } from './forget-kept.ts';
import { type KeptOptions, keptList } from './kept.ts';
import type { MessageName } from './message-name.ts';

/** The names of the messages whose answers have not ended, also of those that were sent before a reload. */
export interface Unfinished {
  readonly add: (name: MessageName) => void;
  readonly remove: (name: MessageName) => void;
  /** Those of a conversation with this bot, the oldest first. */
  readonly list: (customChannelId: string) => MessageName[];
  /** Forgets those of all bots. */
  readonly clear: () => void;
}

interface BotOptions extends KeptOptions {
  readonly baseUrl: string;
  readonly namespace: string;
  readonly botProviderName: string;
}

/** What a bot is called in what the browser keeps. */
export function botKey(options: BotOptions): string {
  return `${baseOf(options)} ${options.namespace}/${options.botProviderName}`;
}

const names = new WeakMap<EventTarget, Unfinished>();

/** The names of the client's messages. */
export function unfinished(client: EventTarget): Unfinished {
  const its = names.get(client) ?? newNames(partsOf(client));
  if (!names.has(client)) {
    names.set(client, its);
    // The next user of this tab must not ask for them.
    client.addEventListener('signed-out', its.clear);
  }
  return its;
}

function newNames({ options, tracker }: ClientParts): Unfinished {
  const bot = botKey(options);
  const { all, set } = keptList(MESSAGES, options);
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
        .filter(([, , its, where]) => its === bot && where === channel)
        .map(([, , , customChannelId = '', customMessageId = '']) => ({ customChannelId, customMessageId })),
    clear: () => set([]),
  };
}
