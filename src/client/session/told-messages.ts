import type { MessageName } from './bot-calls.ts';
import { internalsOf, ofClient } from './client-internals.ts';
import { botKey } from './kept.ts';
import { tabsChannel } from './session-tracker.ts';

/** What tabs tell each other of messages: ids, and no texts. */
type Told = readonly [from: string, user: string | null, bot: string, channelId: string, messageId: string];

/** The messages of which the tabs of a browser, and the clients of a page, tell each other. */
export interface ToldMessages {
  /** Tells that the bot answers this message, or has answered it. */
  readonly tell: (name: MessageName) => void;
  /**
   * Calls `onTold` with the id of a message when another tab tells of it, for the same user, bot and conversation. The
   * returned function ends that.
   */
  readonly listen: (customChannelId: string, onTold: (messageId: string) => void) => () => void;
}

const told = new WeakMap<object, ToldMessages>();

/** The messages of the client's bot. */
export function toldMessages(client: EventTarget): ToldMessages {
  return ofClient(told, client, () => newToldMessages(client));
}

function newToldMessages(client: EventTarget): ToldMessages {
  const { options, tracker, tabs } = internalsOf(client);
  const bot = botKey(options);
  const open = () => tabsChannel('bot-relay-messages', options);
  return {
    tell({ customChannelId, customMessageId }) {
      const user = tracker.user();
      const channel = user === null ? undefined : open();
      channel?.postMessage([tabs.own, user, bot, customChannelId, customMessageId] satisfies Told);
      channel?.close();
    },
    listen(customChannelId, onTold) {
      const channel = open();
      if (channel)
        channel.onmessage = ({ data: [from, user, ofBot, ofChannel, messageId] }: MessageEvent<Told>) => {
          const isOurs = user === tracker.user() && ofBot === bot && ofChannel === customChannelId;
          if (isOurs && from !== tabs.own) onTold(messageId);
        };
      return () => channel?.close();
    },
  };
}
