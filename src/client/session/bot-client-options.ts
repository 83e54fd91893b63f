import type { Guards } from '../transport/bot-event.ts';
import type { BotSettings } from './bot-calls.ts';
import type { IdStorage } from './kept.ts';

/** Which bot, and at which relay. In a page, `{ bot: 'namespace/name' }` is enough. */
export type BotClientOptions = {
  /** The bot, as `namespace/name`; or `namespace` and `botProviderName` apart. */
  readonly bot?: string | undefined;
  /** The namespace of the bot. Missing with `bot`. */
  readonly namespace?: string | undefined;
  /** The bot's name in its namespace. Missing with `bot`. */
  readonly botProviderName?: string | undefined;
  /**
   * The origin of the relay with its base path: `https://chat.example.com`, or `/chat-api` on the page's own origin. In a
   * browser, it is the page's own origin by default. In Node.js it is a URL, and has no default.
   */
  readonly baseUrl?: string | undefined;
  /**
   * A key of the bot service, for servers and scripts: `baseUrl` is then the address of the bot service itself, and
   * nobody signs in. In a browser it is refused: leave it out there, and use the relay.
   */
  readonly apiKey?: string | undefined;
  /** For kinds of events that the application has added to `Facts`. */
  readonly guards?: Guards | undefined;
  /**
   * Keeps the ids of default channels and of messages under way in place of the browser's storage; no texts. Null keeps
   * nothing, and so does Node.js by default.
   */
  readonly ids?: IdStorage | null | undefined;
  /** What few pages need. */
  readonly expert?:
    | {
        /**
         * How long a stream may be silent before it counts as lost, in ms; 45,000 by default, and 200,000 with `apiKey`.
         * At least twice the relay's `HEARTBEAT_MS`.
         */
        readonly silenceMs?: number | undefined;
        /** In place of the global `fetch`. */
        readonly fetch?: typeof fetch | undefined;
        /**
         * `keep`: in Node.js, the client keeps the cookies of the relay in memory. It is then a client of one user: a
         * server needs one for each. Browsers keep cookies themselves.
         */
        readonly cookies?: 'keep' | undefined;
      }
    | undefined;
} & (
  | { readonly bot: string; readonly namespace?: undefined; readonly botProviderName?: undefined }
  | { readonly bot?: undefined; readonly namespace: string; readonly botProviderName: string }
);

/** The settings of a client with these options. @throws TypeError if they name no bot */
export function botSettings({ bot, expert, baseUrl = '', ...options }: BotClientOptions): BotSettings {
  const [namespace, botProviderName, ...others] = bot?.split('/') ?? [
    options.namespace,
    options.botProviderName,
  ];
  if (!namespace || !botProviderName || others.length > 0)
    throw new TypeError('bot must be the namespace and the name of a bot: { bot: "namespace/name" }.');
  return { ...options, ...expert, baseUrl, namespace, botProviderName };
}
