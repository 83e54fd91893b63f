import type { RelayError } from '../transport/relay-error.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { ShownChannel } from './channel-answer.ts';
import { isOver } from './channel-state.ts';
import type { ChannelKey, ChannelMessage, ChannelStorage } from './channel-types.ts';

/** A conversation that is open. */
export interface Opened {
  readonly talk: BotConversation;
  /** The id of the user. */
  readonly user: string;
  /** Nothing was said there yet. */
  readonly isNew: boolean;
}

/** The messages of a channel that the page keeps, if the bot service has no history. */
export interface PageStorage {
  /** The conversation; without a history of the bot service, it shows what is kept when it is asked for. */
  readonly withKept: (its: Opened) => Pick<BotConversation, 'history' | 'metadata'>;
  readonly save: () => void;
  readonly clear: (its: Opened) => Promise<void>;
  /** Nothing more is kept. */
  readonly close: () => void;
}

/** Calls the functions of the page for the conversation that is open `now`. */
export function pageStorage({ state, options }: ShownChannel, now: () => Opened | undefined): PageStorage {
  let isKept = false;
  /** Calls a function of the page. Its failure is shown if the conversation is still there. */
  async function page(its: Opened, call: (storage: ChannelStorage) => Promise<void>): Promise<void> {
    try {
      if (options.history) await call(options.history);
    } catch (error) {
      if (its === now()) state.fail(error);
    }
  }
  function save(): void {
    const its = now();
    if (its && isKept) void page(its, (storage) => storage.save(state.messages(), keyOf(its)));
  }
  const clear = (its: Opened) => page(its, (storage) => storage.clear(keyOf(its)));
  /** Shows them, and has the page keep more from now on. */
  async function show(its: Opened): Promise<void> {
    let messages: readonly ChannelMessage[] = [];
    // Nothing of a new conversation, whatever the page would load.
    if (its.isNew) await clear(its);
    else messages = (await options.history?.load(keyOf(its))) ?? [];
    // The user may have left meanwhile.
    if (its !== now()) return;
    // What was said while it could not be loaded is kept, too.
    state.setInitial(state.first.messages);
    for (const message of messages) state.addPast(message);
    isKept = true;
    const all = state.messages();
    if (all.length > messages.length && all.every((one) => isOver(one.state))) save();
  }
  return {
    clear,
    withKept: (its) => ({
      history: its.talk.history,
      metadata: () =>
        its.talk.metadata().catch(async (error: RelayError) => {
          if (its === now() && error.code === 'operation_not_enabled') await show(its);
          throw error;
        }),
    }),
    save,
    close() {
      isKept = false;
    },
  };
}

const keyOf = ({ user, talk }: Opened): ChannelKey => ({ user, channelId: talk.customChannelId });
