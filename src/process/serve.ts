import type { Config } from '../config/config.ts';
import { risksOf } from '../config/risks.ts';
import type { Logger } from '../logger.ts';
import { BUILD } from './build-info.ts';
import { cannotListen } from './cannot-listen.ts';
import type { Instance } from './instance.ts';
import { openLog } from './log-output.ts';
import { stopOnFault, stopOnSignals } from './shutdown.ts';

/**
 * Serves until a signal. Resolves once the relay listens.
 * @throws ConfigError if the users file cannot be used
 */
export async function serve(config: Config, underNpm: boolean): Promise<void> {
  const { logger, output } = openLog(config.logLevel);
  stopOnFault(logger);
  let instance: Instance | undefined;
  // Also before the relay listens: the signal would end the process.
  process.on('SIGHUP', () => instance?.reload());
  const { startInstance } = await import('./instance.ts');
  instance = await startInstance({ config, logger, cannotListen, droppedLogLines: output.dropped });
  const { port, parts, close } = instance;
  if (parts.metrics) {
    const { addProcessMetrics } = await import('../watch/metrics.ts');
    addProcessMetrics(parts.metrics.registry);
  }
  const origin = originOf(config, port);
  announce(config, { port, origin, logger });
  // In the background: the relay is ready without the provider.
  if (parts.signIn.mode === 'oidc') void parts.signIn.provider.discover();
  if (config.demo) {
    const { demoBanner } = await import('./demo.ts');
    output.write(demoBanner(origin + config.basePath, config, instance.demo?.console));
  }
  stopOnSignals({ logger, openMessages: parts.open.count, close, underNpm });
}

/** The origin that browsers use. In the demo the system may have chosen the port. */
function originOf({ demo, publicUrl }: Config, port: number): string {
  const base = new URL(publicUrl);
  if (demo) base.port = String(port);
  return base.origin;
}

function announce(config: Config, listens: { port: number; origin: string; logger: Logger }): void {
  const { port, origin, logger } = listens;
  const { host, demo, bots, authMode } = config;
  const { version, revision } = BUILD;
  logger.info({ version, revision, host, port, demo, bots, authMode, publicUrl: origin }, 'listening');
  for (const risk of risksOf(config)) logger.warn(risk);
}
