import { type Config, ConfigError } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import { ASSISTANT_BOT, assistantOf } from '../service/bot-brains.ts';
import { type BotService, type BotServiceOptions, startBotService } from '../service/bot-service.ts';
import { SettingsError } from '../service/settings/settings-error.ts';
import { cannotListen, type PortName } from './cannot-listen.ts';

/** What the bot service is started with besides its configuration. */
export interface ServiceStart extends Pick<BotServiceOptions, 'keys' | 'limit' | 'host' | 'port'> {
  readonly logger: Logger;
  /** Where the console listens; there is none if not given. */
  readonly consolePort: number | undefined;
  /** Returns the handler for a port that cannot be opened. */
  readonly cannotListen?: (name: PortName) => (error: NodeJS.ErrnoException) => never;
}

/**
 * Starts the bot service of this project.
 * @throws ConfigError if its data cannot be used, or the console has no password where it needs one
 */
export async function startService(
  { data, secret, keepDays, model, console }: Config['service'],
  { logger, consolePort, cannotListen: refuse = cannotListen, ...options }: ServiceStart,
): Promise<BotService> {
  try {
    return await startBotService({
      ...options,
      keepDays,
      ...(data !== undefined && secret && { database: { path: data, secret } }),
      ...(model && { assistant: assistantOf(model) }),
      ...(consolePort !== undefined && { console: { ...console, port: consolePort } }),
      onModelError: (bot, cause) => logger.warn({ bot, cause }, 'model failed'),
      onFault: (err) => logger.error({ err }, 'bot service failed'),
    });
  } catch (error) {
    if (error instanceof SettingsError) throw new ConfigError([error.message], error.message);
    const { syscall, port } = error as NodeJS.ErrnoException & { readonly port?: number };
    if (syscall !== 'listen' && syscall !== 'getaddrinfo') throw error;
    return refuse(port === consolePort ? 'SERVICE_CONSOLE_PORT' : 'SERVICE_PORT')(error as Error);
  }
}

/** The lines of a banner about the service: what answers, and how to sign in at its console. */
export function serviceLines(
  { model }: Pick<Config['service'], 'model'>,
  console: BotService['console'],
): string[] {
  const { url, signInLink } = console ?? {};
  return [
    ...(model ? [`The bot ${ASSISTANT_BOT} answers with ${model.kind}/${model.model}.`] : []),
    ...(signInLink ? [`The console of the bot service, for one sign-in: ${signInLink}`] : []),
    ...(url && !signInLink ? [`The console of the bot service, with its password: ${url}`] : []),
  ];
}
