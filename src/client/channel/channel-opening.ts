import type { BotClient } from '../session/bot-client.ts';
import { internalsOf } from '../session/client-internals.ts';
import { type FollowedSession, followedSession } from '../session/followed-session.ts';
import { randomId } from '../transport/calls.ts';
import { RelayError } from '../transport/relay-error.ts';
import { type BotConversation, botConversation } from './bot-conversation.ts';
import type { ShownChannel } from './channel-answer.ts';
import type { ChannelPast } from './channel-past.ts';
import { defaultChannels } from './default-channel.ts';

/** The conversation of a channel, which depends on who is signed in. */
export interface ChannelOpening {
  /** Begins to follow who is signed in; what was said before is then shown. */
  readonly begin: () => void;
  readonly end: () => void;
  /** Undefined while nobody is signed in, or while that is not known. */
  readonly talk: () => BotConversation | undefined;
  /** Waits until somebody is signed in. @throws RelayError if nobody is */
  readonly opened: () => Promise<BotConversation>;
  /** Begins a new default channel; returns false if the channel has an id of its own. */
  readonly renew: () => boolean;
}

interface OpeningOptions {
  readonly shown: ShownChannel;
  readonly past: ChannelPast;
  /** Ends all that is under way, since the user has left. */
  readonly leave: () => void;
}

/** The ids of `freshId` that no channel has opened yet. */
const fresh = new Set<string>();

/** Makes the id of a conversation that is new: its channel does not ask what was said before. */
export function freshId(): string {
  const id = randomId();
  fresh.add(id);
  return id;
}

/** Opens a channel for the user who is signed in, and empties it when that user leaves. */
export function channelOpening(client: BotClient, { shown, past, leave }: OpeningOptions): ChannelOpening {
  const { state, options } = shown;
  const store = followedSession(client);
  let user: string | undefined;
  let talk: BotConversation | undefined;
  function open(its: string, isFresh = false): void {
    const found =
      options.id === undefined ? defaultChannels(internalsOf(client).options).idFor(its, isFresh) : undefined;
    user = its;
    talk = botConversation(client, found?.id ?? `${options.id}`);
    past.begin({ talk, user: its, isNew: found?.isNew ?? fresh.delete(`${options.id}`) });
  }
  function empty(isDropped = false): void {
    if (isDropped) past.forget();
    leave();
    state.removeAll();
    state.change({ error: undefined, isLoading: true, failedHistory: undefined });
    talk = user = undefined;
  }
  function look(): void {
    const { session, error } = store.getSnapshot();
    state.change({ session, ...(session === null && { isLoading: false }) });
    if (error && session === undefined) state.fail(error);
    const its = session?.user.id;
    if (its && its !== user && its === (options.user ?? its)) open(its);
    past.onSession(its === user);
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

/** Looks who is signed in, and again at each change, from `begin` to `end`. */
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
