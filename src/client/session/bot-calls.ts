import type { Guards } from '../transport/bot-event.ts';
import { answerOf, type Call, type Caller, type CallsOptions, streamOf } from '../transport/calls.ts';
import { type MessageStream, messageStream, type OnState } from '../transport/message-stream.ts';
import type { OpenStream } from '../transport/reconnecting.ts';
import { giveHint, isSignedOut, RelayError, signedOut } from '../transport/relay-error.ts';
import type { IdStorage } from './kept.ts';
import type { SessionTracker } from './session-tracker.ts';

/** Three times the default of the relay's `HEARTBEAT_MS`. */
const SILENCE_MS = 45_000;

/** What a client is made with: the options of `createBotClient` in one list. */
export interface BotSettings extends CallsOptions {
  readonly namespace: string;
  readonly botProviderName: string;
  readonly apiKey?: string | undefined;
  readonly silenceMs?: number | undefined;
  readonly guards?: Guards | undefined;
  readonly ids?: IdStorage | null | undefined;
}

/** Calls of one bot's operations. The tracker learns from each answer whether somebody is signed in. */
export interface BotCalls {
  /** The path of an operation, below the base path of the relay. */
  readonly pathOf: (operation: string, query?: Readonly<Record<string, string>>) => string;
  /** The JSON of an answer; undefined for 204. @throws RelayError */
  readonly ask: (path: string, call?: Call) => Promise<unknown>;
  /**
   * An event stream, which is asked for when it is first read. Without a `path`, it is the stream of a message that was
   * sent before. It fails if somebody else has signed in meanwhile.
   */
  readonly stream: (path: string | undefined, call: Call, options: StreamOptions) => MessageStream;
}

/** By what the relay knows a message. It does not depend on the text. */
export interface MessageName {
  readonly customChannelId: string;
  readonly customMessageId: string;
}

/** How an event stream is read. */
export interface StreamOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onState?: OnState | undefined;
  readonly isLive?: boolean;
  /** The message's name, by which its stream is joined after a break. */
  readonly name?: MessageName | undefined;
  /** Called each time before the relay is asked. */
  readonly onAsk?: (() => void) | undefined;
}

/** What the calls of a bot need of its client. */
export interface BotCallsDependencies {
  readonly call: Caller;
  readonly tracker: SessionTracker;
}

/** The calls of the bot that `options` name. */
export function botCalls(options: BotSettings, { call, tracker }: BotCallsDependencies): BotCalls {
  const { namespace, botProviderName, silenceMs = SILENCE_MS, guards } = options;
  const base = `/generic/ns/${encodeURIComponent(namespace)}/bot-provider/${encodeURIComponent(botProviderName)}/`;
  const pathOf = (operation: string, query?: Readonly<Record<string, string>>) =>
    base + operation + (query ? `?${new URLSearchParams(query)}` : '');
  /** Tells the tracker of an error, and adds a hint if the relay does not know the bot. */
  const onErrorIn = (askedIn: number) => (error: unknown) => {
    if (isSignedOut(error)) tracker.learn(false, askedIn);
    if (error instanceof RelayError && error.code === 'unknown_bot')
      giveHint(error, `The relay has no bot ${namespace}/${botProviderName}: look at its BOTS.`);
  };
  return {
    pathOf,
    async ask(path, init) {
      const askedIn = tracker.current();
      const asked = answerOf<unknown>(call(path, init));
      asked.then(() => tracker.learn(true, askedIn), onErrorIn(askedIn));
      return asked;
    },
    stream(path, init, { name, onAsk, ...streamOptions }) {
      const askedIn = tracker.current();
      const asking =
        (of: string, init: Call): OpenStream =>
        async (signal, lastEventId) => {
          // In the session of another user, nothing may be sent, resumed or shown.
          if (askedIn !== tracker.current()) throw signedOut();
          onAsk?.();
          // A message that is resumed, or joined by its name, was sent before.
          const unsent = init.body && !lastEventId ? 'new message' : undefined;
          const response = await streamOf(call(of, { ...init, lastEventId, signal }), unsent);
          tracker.learn(true, askedIn);
          return response;
        };
      return messageStream({
        ...streamOptions,
        silenceMs,
        guards,
        ended: tracker.ended(),
        open: path === undefined ? path : asking(path, init),
        join: name && asking(pathOf('message/run', queryOf(name)), {}),
        onError: onErrorIn(askedIn),
      });
    },
  };
}

function queryOf({ customChannelId, customMessageId }: MessageName): Record<string, string> {
  return { custom_channel_id: customChannelId, custom_message_id: customMessageId };
}

/** The name of the message with this body; undefined if it has none. */
export function nameOf(message: object): MessageName | undefined {
  const { customChannelId, customMessageId } = message as Partial<Record<string, unknown>>;
  return isId(customChannelId) && isId(customMessageId) ? { customChannelId, customMessageId } : undefined;
}

const isId = (value: unknown): value is string => typeof value === 'string' && value !== '';
