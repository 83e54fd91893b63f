/**
 * Hooks for React 18 and 19. The module also exports all of `bot-relay-client`.
 * @module bot-relay-client/react
 */
'use client';
import {
  createContext,
  createElement,
  type ReactElement,
  type ReactNode,
  useContext,
  useEffect,
  useState,
  useSyncExternalStore,
} from 'react';
import type { Channel, ChannelOptions, ChannelSnapshot } from './channel/channel-types.ts';
import { createChannel, newChannel } from './channel/create-channel.ts';
import { type BotClient, type BotClientOptions, createBotClient } from './session/bot-client.ts';
import {
  followedSession,
  type SessionActions,
  type SessionSnapshot,
  sessionActions,
  UNKNOWN,
} from './session/followed-session.ts';

export * from './index.ts';
export { BotChat, type BotChatProps } from './react-bot-chat.ts';
export type { SessionActions, SessionSnapshot };

const Client = createContext<BotClient | undefined>(undefined);

/** A client, or the options of one. */
export type BotProviderProps = {
  /** The components that use it. */
  readonly children?: ReactNode;
} & (
  | {
      /** A client that the page has made. */
      readonly client: BotClient;
    }
  | (BotClientOptions & {
      /** Missing with options. */
      readonly client?: undefined;
      /** A key is for servers and scripts. */
      readonly apiKey?: undefined;
    })
);

/**
 * Gives the components below it one client. With options, the client is made once; another one is made when
 * `baseUrl`, `bot`, `namespace` or `botProviderName` change. Plain options can come from a component of the server.
 * @param props A client, or the options of one.
 */
export function BotProvider({ children, ...of }: BotProviderProps): ReactElement {
  const key = of.client ? '' : JSON.stringify([of.baseUrl, of.bot, of.namespace, of.botProviderName]);
  const make = () => ({ key, client: of.client ?? createBotClient(of) });
  // Not in useMemo, since React may drop its value.
  const [made, setMade] = useState(make);
  // React renders the component again before its children.
  if (made.key !== key) setMade(make());
  return createElement(Client.Provider, { value: of.client ?? made.client }, children);
}

/**
 * The client of the nearest `BotProvider`.
 * @throws Error if there is none
 */
export function useBotClient(): BotClient {
  return provided(useContext(Client));
}

function provided(client: BotClient | undefined): BotClient {
  if (client) return client;
  throw new Error('There is no BotProvider above this component.');
}

/** A channel that the page has made, or the options of one. */
export type UseBotOptions =
  | {
      /** A channel that the page has made. */
      readonly channel: Channel;
    }
  | (ChannelOptions & {
      /** Missing with options. */
      readonly channel?: undefined;
    });

/** What a component shows of a channel, and what it can do. The functions keep their identity between renders. */
export type Bot = ChannelSnapshot & Omit<Channel, 'subscribe' | 'getSnapshot' | 'getServerSnapshot'>;

/**
 * A channel, drawn at most once a frame. Components with the same client and `id` share it, and it goes on when they are
 * gone. Nothing is asked while a server renders the page.
 * @throws Error if there is neither a `channel` nor a BotProvider
 */
export function useBot(options: UseBotOptions = {}): Bot {
  const client = useContext(Client);
  const channel = options.channel ?? channelOf(provided(client), options);
  const { subscribe, getSnapshot, getServerSnapshot, ...functions } = channel;
  // Options of a later render, such as new functions, take the place of the former ones.
  useEffect(() => {
    if (client && !options.channel) createChannel(client, options);
  });
  return { ...useSyncExternalStore(subscribe, getSnapshot, getServerSnapshot), ...functions };
}

function channelOf(client: BotClient, options: ChannelOptions): Channel {
  // A server renders the pages of several users with one client.
  if (typeof document === 'undefined') return newChannel(client, options);
  return createChannel(client, { id: options.id, initialMessages: options.initialMessages });
}

/**
 * Who is signed in, and the functions to sign in and out. They never reject: a failure is `error`. The relay is asked
 * once, whatever uses it.
 * @throws Error if there is no BotProvider
 */
export function useSession(): SessionSnapshot & SessionActions {
  const client = useBotClient();
  const { subscribe, getSnapshot } = followedSession(client);
  return { ...useSyncExternalStore(subscribe, getSnapshot, () => UNKNOWN), ...sessionActions(client) };
}
