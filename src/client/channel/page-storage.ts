import { isNotEnabled } from '../transport/relay-error.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { ShownChannel } from './channel-answer.ts';
import { isOver } from './channel-state.ts';
import type { ChannelKey, ChannelMessage, MessageStorage } from './channel-types.ts';

/** A conversation that is open. */
export interface Opened {
  readonly talk: BotConversation;
  /** The id of the user. */
  readonly user: string;
  /** Whether nothing was said there yet. */
  readonly isNew: boolean;
}

/** Has the page keep the messages of a channel, if the bot service gives no history. */
export interface PageStorage {
  /** The same conversation. If it turns out to give no history, the messages that the page has kept are shown. */
  readonly withKept: (opened: Opened) => Pick<BotConversation, 'history' | 'metadata'>;
  /** Whether the relay has said that there is no history. */
  readonly hasNoHistory: () => boolean;
  readonly save: () => void;
  readonly clear: (opened: Opened) => Promise<void>;
  /** From now on, nothing is kept. */
  readonly close: () => void;
}

/** Calls the functions of the page. `now` returns the conversation that is open. */
export function pageStorage({ state, options }: ShownChannel, now: () => Opened | undefined): PageStorage {
  let isKept = false;
  let isWithout = false;
  /** Calls a function of the page. Its error is shown if the conversation is still open. */
  async function page(opened: Opened, call: (storage: MessageStorage) => Promise<void>): Promise<void> {
    try {
      if (options.messages) await call(options.messages);
    } catch (error) {
      if (opened === now()) state.fail(error);
    }
  }
  function save(): void {
    const opened = now();
    if (opened && isKept) void page(opened, (storage) => storage.save(state.messages(), keyOf(opened)));
  }
  const clear = (opened: Opened) => page(opened, (storage) => storage.clear(keyOf(opened)));
  /** Shows the messages that the page has kept. From now on, it keeps all. */
  async function show(opened: Opened): Promise<void> {
    let messages: readonly ChannelMessage[] = [];
    // A new conversation has no messages, whatever the page would load.
    if (opened.isNew) await clear(opened);
    else messages = (await options.messages?.load(keyOf(opened))) ?? [];
    // The user may have left meanwhile.
    if (opened !== now()) return;
    // Messages that were sent before these were loaded are kept, too.
    state.setInitial(state.first.messages);
    for (const message of messages) state.addPast(message);
    isKept = true;
    const all = state.messages();
    if (all.length > messages.length && all.every((one) => isOver(one.state))) save();
  }
  return {
    clear,
    withKept: (opened) => ({
      history: opened.talk.history,
      metadata: () =>
        opened.talk.metadata().catch(async (error) => {
          isWithout ||= isNotEnabled(error);
          if (opened === now() && isNotEnabled(error)) await show(opened);
          throw error;
        }),
    }),
    hasNoHistory: () => isWithout,
    save,
    close() {
      isKept = false;
    },
  };
}

const keyOf = ({ user, talk }: Opened): ChannelKey => ({ user, channelId: talk.customChannelId });
