import type { BotClient } from '../session/bot-client.ts';
import { internalsOf } from '../session/client-internals.ts';
import { type FollowedSession, followedSession } from '../session/followed-session.ts';
import { toldMessages } from '../session/told-messages.ts';
import { randomId } from '../transport/calls.ts';
import { RelayError } from '../transport/relay-error.ts';
import { type BotConversation, botConversation } from './bot-conversation.ts';
import type { ShownChannel } from './channel-answer.ts';
import type { ChannelPast } from './channel-past.ts';
import { defaultChannels } from './default-channel.ts';

/** The conversation of a channel, which depends on who is signed in. */
export interface ChannelOpening {
  /** Begins to follow who is signed in, and opens the conversation of that user. */
  readonly begin: () => void;
  /** Closes the conversation, and follows nobody any more. */
  readonly end: () => void;
  /** Undefined while nobody is signed in, or while that is not known. */
  readonly talk: () => BotConversation | undefined;
  /** Waits until it is known who is signed in. @throws RelayError if nobody is */
  readonly opened: () => Promise<BotConversation>;
  /** Begins a new default channel; returns false if the channel has an id of its own. */
  readonly renew: () => boolean;
}

interface ChannelOpeningDependencies {
  readonly shown: ShownChannel;
  readonly past: ChannelPast;
  /** Ends all that is under way, when the user has left. */
  readonly leave: () => void;
}

/** The ids of `freshId` that no channel has opened so far. */
const fresh = new Set<string>();

/** Makes the id of a new conversation. Its channel does not ask for a history. */
export function freshId(): string {
  const id = randomId();
  fresh.add(id);
  return id;
}

/** Opens the conversation of the user who is signed in, and empties the channel when that user leaves. */
export function channelOpening(
  client: BotClient,
  { shown, past, leave }: ChannelOpeningDependencies,
): ChannelOpening {
  const { state, options } = shown;
  const store = followedSession(client);
  let user: string | undefined;
  let talk: BotConversation | undefined;
  let endListening = () => {};
  function open(next: string, isFresh = false): void {
    const found =
      options.id === undefined
        ? defaultChannels(internalsOf(client).options).idFor(next, isFresh)
        : undefined;
    user = next;
    talk = botConversation(client, found?.id ?? `${options.id}`);
    endListening();
    endListening = toldMessages(client).listen(talk.customChannelId, past.onTold);
    past.begin({ talk, user: next, isNew: found?.isNew ?? fresh.delete(`${options.id}`) });
  }
  function empty(isDropped = false): void {
    if (isDropped) past.forget();
    leave();
    endListening();
    state.removeAll();
    state.change({ error: undefined, isLoading: true, failedHistory: undefined });
    talk = user = undefined;
  }
  function look(): void {
    const { session, error } = store.getSnapshot();
    state.change({ session, ...(session === null && { isLoading: false }) });
    if (error && session === undefined) state.fail(error);
    const id = session?.user.id;
    if (id && id !== user && id === (options.expert?.user ?? id)) open(id);
    past.onSession(id === user);
  }
  const following = followed(store, look, () => empty(true));
  return {
    ...{ begin: following.begin, talk: () => talk },
    end() {
      following.end();
      empty();
    },
    async opened() {
      following.begin();
      const { error } = talk ? {} : await store.known();
      if (talk) return talk;
      throw error ?? new RelayError('You are not signed in.', { code: 'unauthenticated', status: 401 });
    },
    renew() {
      if (options.id !== undefined || user === undefined) return false;
      past.forget();
      open(user, true);
      return true;
    },
  };
}

/** Calls `look` at `begin` and at each change of the session, and `drop` when the user has left, until `end`. */
function followed(store: FollowedSession, look: () => void, drop: () => void) {
  let ends: (() => void)[] = [];
  return {
    begin() {
      if (ends.length > 0) return;
      ends = [store.onDrop(drop), store.subscribe(look)];
      look();
    },
    end() {
      for (const end of ends.splice(0)) end();
    },
  };
}
