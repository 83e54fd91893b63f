import { botPath, type PathShape } from '../bots/bot.ts';
import { rateLimitOf } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import { withJitterMargin } from '../pace/budgets.ts';
import { memoryBudgets } from '../pace/memory-budgets.ts';
import { redisBudgets } from '../pace/redis-budgets.ts';
import { slotWaits } from '../pace/slot-waits.ts';
import { withKey } from '../relay/upstream/upstream-request.ts';
import { targetPrefix, userHintHeader } from '../relay/upstream/upstream-target.ts';
import type { Secret } from '../secret.ts';
import type { Redis } from '../storage/redis.ts';
import type { Answer } from './answers.ts';
import { botOf, groupsOfBot, type Message } from './conversation.ts';
import { HttpClient, isStream, jsonBody, type Opened, wholeAnswer } from './http-client.ts';
import type { CheckReport } from './report.ts';

/** How long a message of the check may wait for its slot, in ms. It may be long, since no user waits for the answer. */
const MAX_WAIT_MS = 30_000;
/** How long the bot service may take to delete a conversation, in ms. */
const REMOVAL_TIMEOUT_MS = 65_000;

/** A message to the bot `namespace/bot`, with one key. */
export interface DirectMessage {
  readonly bot: string;
  readonly key: Secret;
  readonly message: Message;
  /** Asks for the rest of the stream after this id. */
  readonly lastEventId?: string | undefined;
}

export interface DirectServiceOptions {
  readonly config: Config;
  readonly redis: Redis | undefined;
  /** Counts the messages. */
  readonly report: CheckReport;
}

/** The bot service at `UPSTREAM_BASE_URL`, which must be set. Each call waits for a slot, as those of the relay do. */
export class DirectService {
  readonly #options: DirectServiceOptions;
  readonly #client: HttpClient;
  readonly #takeSlot: (endpoint: string) => Promise<boolean>;
  /** The messages that it has answered with a stream. */
  readonly #answered: DirectMessage[] = [];

  constructor(options: DirectServiceOptions) {
    const { baseUrl, userHeader } = options.config.upstream;
    this.#options = options;
    this.#client = new HttpClient(baseUrl as Readonly<URL>, {
      ...{ Accept: 'text/event-stream', 'Accept-Encoding': 'identity' },
      ...userHintHeader(userHeader, 'bot-relay-check'),
    });
    this.#takeSlot = slotsOf(options);
  }

  /**
   * Sends a message. Resolves when its stream begins, with the answer if that is no stream, or with undefined if there
   * is no slot for it.
   * @throws Error with a code as its message, if there is no answer
   */
  async send(message: DirectMessage): Promise<Opened | Answer | undefined> {
    const { bot, lastEventId } = message;
    if (!(await this.#takeSlot(bot))) return undefined;
    const isResumption = lastEventId !== undefined;
    if (!isResumption) this.#options.report.messages++;
    const body = jsonBody(message.message);
    const { responseTimeoutMs: timeoutMs } = this.#options.config.upstream;
    // The bytes of the header's value, as Node.js takes them.
    const headers = isResumption ? { 'Last-Event-ID': Buffer.from(lastEventId).toString('latin1') } : {};
    const path = this.#pathOf('/generic/ns', bot, 'message/sse');
    const call = { method: 'POST', path, body, headers, timeoutMs } as const;
    const opened = await this.#client.open(withKey(call, message.key));
    if (!isStream(opened.response)) return wholeAnswer(opened.response);
    if (!isResumption) this.#answered.push(message);
    return opened;
  }

  /** Deletes the conversations of all messages, as far as the group `chat` is on for their bots. Never rejects. */
  async removeConversations(): Promise<void> {
    for (const message of this.#answered)
      if (groupsOfBot(this.#options.config, message.bot).includes('chat'))
        await this.#remove(message).catch(() => {});
  }

  async #remove({ bot, key, message }: DirectMessage): Promise<void> {
    if (!(await this.#takeSlot(`${bot}/channel`))) return;
    const query = new URLSearchParams({ custom_channel_id: message.customChannelId });
    const path = `${this.#pathOf('/ns', bot, 'channel')}?${query}`;
    const call = { method: 'DELETE', path, headers: {}, timeoutMs: REMOVAL_TIMEOUT_MS } as const;
    (await this.#client.open(withKey(call, key))).response.destroy();
  }

  #pathOf(shape: PathShape, bot: string, operation: string): string {
    const prefix = targetPrefix(this.#options.config.upstream.baseUrl as Readonly<URL>);
    return `${botPath(prefix, shape, botOf(bot))}/${operation}`;
  }
}

/**
 * Waits for a slot of an endpoint; resolves with whether there is one. With Redis, slots come from the budget that all
 * instances share. Without Redis the check does not know what the relay sends, so it takes only one in each window.
 */
function slotsOf({ config, redis }: DirectServiceOptions): (endpoint: string) => Promise<boolean> {
  const { rate, upstream } = config;
  const limitOf = (endpoint: string) => rateLimitOf(upstream, endpoint);
  const own = withJitterMargin(redis ? { ...rate, limitOf } : { limit: 1, windowMs: rate.windowMs });
  const budgets = redis ? redisBudgets(redis, own) : memoryBudgets(own);
  const { take } = slotWaits(budgets, { ...own, maxWaitMs: MAX_WAIT_MS });
  return async (endpoint) => {
    const { slot } = await take({ endpoint, holders: ['check'] }, new AbortController().signal);
    return slot !== undefined;
  };
}
