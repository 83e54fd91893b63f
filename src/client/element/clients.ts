import { type BotClient, createBotClient } from '../session/bot-client.ts';

const clients = new Map<string, BotClient>();

/**
 * The client of the bot `namespace/name` at the relay `base`. It is the same for all elements, so that one that was
 * removed and comes again goes on in the same channel.
 */
export function clientOf(base: string, bot: string): BotClient {
  const key = JSON.stringify([base, bot]);
  const [namespace = '', botProviderName = ''] = bot.split('/');
  const client = clients.get(key) ?? createBotClient({ baseUrl: base, namespace, botProviderName });
  clients.set(key, client);
  return client;
}
