import type { Config } from '../config/config.ts';
import { risksOf } from '../config/risks.ts';
import { cannotListen } from './cannot-listen.ts';
import type { Instance } from './instance.ts';
import type { Log } from './log.ts';
import { shutdown } from './shutdown.ts';
import { reloadOnSignal, stopOnFault, stopOnSignal, stopWithParent } from './signals.ts';
import type { WorkerHandlers } from './worker-channel.ts';

export interface RunInstanceOptions {
  readonly log: Log;
  /** Whether `npm start` started this process. If so, it stops when its parent ends. */
  readonly underNpm?: boolean;
  /** In a worker: its number, and what connects it to the messages of the primary. */
  readonly worker?: number;
  readonly listenToPrimary?: (handlers: WorkerHandlers) => void;
}

/**
 * Serves in this process until a signal or the primary stops it; returns once it listens.
 * @throws ConfigError if the users file, or the folder of uploads, cannot be used
 */
export async function runInstance(config: Config, options: RunInstanceOptions): Promise<void> {
  const { log, underNpm, worker, listenToPrimary } = options;
  const { logger, output } = log;
  stopOnFault(logger);
  let instance: Instance | undefined;
  reloadOnSignal(() => instance?.reload());
  const { startInstance } = await import('./instance.ts');
  const started = await startInstance({
    ...{ config, logger, worker, cannotListen },
    servesMetrics: worker === undefined,
    droppedLogLines: output.dropped,
  });
  instance = started;
  await announce(config, started, options);
  const stopping = shutdown({
    logger,
    logFields: () => ({ openMessages: started.parts.open.count() }),
    close: started.close,
    exit: (code) => process.exit(code),
  });
  stopOnSignal(stopping);
  if (listenToPrimary) listenToPrimary({ ...started, stop: stopping.begin });
  else if (underNpm) stopWithParent(stopping);
}

/** Logs that the relay listens; in the demo, also prints the banner on the terminal. */
async function announce(config: Config, instance: Instance, options: RunInstanceOptions): Promise<void> {
  const { logger, output } = options.log;
  const { port, parts } = instance;
  const base = new URL(config.publicUrl);
  if (config.demo) base.port = String(port);
  const { host, demo, bots, authMode } = config;
  logger.info({ host, port, demo, bots, authMode, publicUrl: base.origin }, 'listening');
  // In the background: the relay is ready without the provider.
  if (parts.signIn.mode === 'oidc') void parts.signIn.provider.discover();
  if (options.worker === undefined) for (const risk of risksOf(config)) logger.warn(risk);
  if (!demo) return;
  const { demoBanner } = await import('../demo/start-demo.ts');
  output.write(demoBanner(base.origin + config.basePath, config));
}
