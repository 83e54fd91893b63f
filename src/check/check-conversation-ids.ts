import { randomUUID } from 'node:crypto';
import { botPath } from '../bots/bot-path.ts';
import type { Config } from '../config/config.ts';
import { Problem } from '../errors.ts';
import type { SlotWaits } from '../pace/slot-waits.ts';
import { createUpstream } from '../relay/upstream/send.ts';
import { withKey } from '../relay/upstream/upstream-request.ts';
import type { Answered } from './check-keys.ts';
import type { Finding, Report } from './findings.ts';

const CHECK = 'conversation ids';
const PATH = 'channel/metadata';

export interface ConversationIdsOptions {
  readonly config: Config;
  readonly slots: SlotWaits;
  readonly report: Report;
}

/**
 * Proves that the bot service does not take two ids for the same one, for example since it cuts them. With
 * `CHANNELS=owned` a user could otherwise begin what another has. `answered` is a conversation that the service has.
 * The relay itself takes ids without case, so that it does not matter whether the service does.
 */
export async function checkConversationIds(
  answered: Answered & { readonly bot: string },
  { report, ...options }: ConversationIdsOptions,
): Promise<void> {
  const { id } = answered.conversation;
  const similar = id.slice(0, -1) + (id.endsWith('0') ? '1' : '0');
  const own = await statusOf(id, answered, options);
  const other = own === 200 ? await statusOf(similar, answered, options) : undefined;
  report({ check: CHECK, about: answered.bot, ...verdictOn(own, other) });
}

function verdictOn(own: number | string, other: number | string | undefined): Omit<Finding, 'check'> {
  if (own === 200 && other === 404)
    return { state: 'ok', says: 'the bot service tells two ids apart that differ in their last character' };
  if (own === 200 && other === 200) {
    return {
      state: 'problem',
      says: 'the bot service takes two ids for the same one that differ in the last of 64 characters',
      advice: 'With CHANNELS=owned, two users could get one conversation: set CHANNELS=scoped.',
    };
  }
  const says = `not proved: the bot service answers ${PATH} with ${other ?? own}`;
  return { state: 'note', says, advice: 'Ask those who run the bot service whether the key may use it.' };
}

/** The status of the conversation's metadata, or the code of what failed. */
async function statusOf(
  id: string,
  { bot, key }: Answered & { readonly bot: string },
  { config, slots }: Omit<ConversationIdsOptions, 'report'>,
): Promise<number | string> {
  const { upstream } = config;
  const baseUrl = upstream.baseUrl as Readonly<URL>;
  const [namespace = '', botProviderName = ''] = bot.split('/');
  const prefix = botPath(baseUrl.pathname.replace(/\/+$/, ''), '/ns', { namespace, botProviderName });
  const headers = {
    ...{ accept: '*/*', 'accept-encoding': 'identity', 'x-request-id': randomUUID() },
    ...(upstream.userHeader && { [upstream.userHeader]: 'bot-relay-check' }),
  };
  const path = `${prefix}/${PATH}?custom_channel_id=${encodeURIComponent(id)}`;
  const request = { method: 'GET' as const, path, headers, body: Buffer.alloc(0) };
  const { slot } = await slots.take(
    { endpoint: `${bot}/${PATH}`, holders: ['check'] },
    new AbortController().signal,
  );
  if (!slot) return 'no slot';
  const sender = createUpstream(baseUrl);
  let status: number | undefined;
  try {
    const signal = AbortSignal.timeout(upstream.responseTimeoutMs);
    const options = { signal, onDelayed: async () => {}, onSent: () => {} };
    const answer = await sender.send(withKey(request, key), options);
    answer.close();
    status = answer.status;
    return status;
  } catch (error) {
    return error instanceof Problem ? error.code : (error as Error).name;
  } finally {
    slots.judged(slot, status !== undefined && status !== 429);
    sender.close();
  }
}
