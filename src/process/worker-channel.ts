import cluster, { type Worker } from 'node:cluster';
import type { Environment } from '../config/environment.ts';

/** How long a worker may take to send its metrics, in ms: far below the 10 s that Prometheus waits for all. */
const METRICS_TIMEOUT_MS = 3_000;

/** Why a worker is to stop. */
export type StopSignal = 'SIGTERM' | 'SIGINT' | 'parent gone';

type ToWorker =
  | { readonly kind: 'start'; readonly environment: Environment }
  | { readonly kind: 'reload' }
  | { readonly kind: 'stop'; readonly signal: StopSignal }
  | { readonly kind: 'metrics'; readonly id: number };

type FromWorker =
  | { readonly kind: 'started' }
  | { readonly kind: 'metrics'; readonly id: number; readonly text: string };

/** What a worker does for each message of its primary. */
export interface WorkerHandlers {
  reload(): void;
  stop(signal: StopSignal): void;
  metricsText(): Promise<string>;
}

/**
 * In a worker: asks the primary for the environment from which the configuration is read. It holds secrets, so it is
 * not the environment of the worker's process, which the system shows to others. The worker asks because it would miss
 * a message that comes before it listens.
 */
export function askForEnvironment(): Promise<Environment> {
  return new Promise((resolve) => {
    const onMessage = (message: ToWorker) => {
      if (message.kind !== 'start') return;
      cluster.worker?.off('message', onMessage);
      resolve(message.environment);
    };
    cluster.worker?.on('message', onMessage);
    sendToPrimary({ kind: 'started' });
  });
}

/** In a worker: handles the messages of the primary from now on. */
export function handlePrimaryMessages(handlers: WorkerHandlers): void {
  cluster.worker?.on('message', (message: ToWorker) => {
    if (message.kind === 'reload') handlers.reload();
    else if (message.kind === 'stop') handlers.stop(message.signal);
    else if (message.kind === 'metrics') {
      const { id } = message;
      // If there is no answer, the primary goes on without it.
      handlers.metricsText().then(
        (text) => sendToPrimary({ kind: 'metrics', id, text }),
        () => {},
      );
    }
  });
}

function sendToPrimary(message: FromWorker): void {
  // If the primary is gone, Node.js ends this process.
  cluster.worker?.send(message, () => {});
}

/** In the primary: sends a message to `worker`. A worker that has ended, or does not listen yet, misses it. */
export function sendTo(worker: Worker, message: Exclude<ToWorker, { kind: 'metrics' }>): void {
  if (worker.isConnected()) worker.send(message, () => {});
}

/** In the primary: sends `worker` its environment when it asks for it. */
export function sendEnvironment(worker: Worker, environment: Environment): void {
  worker.on('message', (message: FromWorker) => {
    if (message.kind === 'started') sendTo(worker, { kind: 'start', environment });
  });
}

let lastId = 0;

/** In the primary: the metrics of `worker`; `undefined` if it ends or does not send them within `withinMs`. */
export function metricsOf(worker: Worker, withinMs = METRICS_TIMEOUT_MS): Promise<string | undefined> {
  if (!worker.isConnected()) return Promise.resolve(undefined);
  lastId += 1;
  const id = lastId;
  return new Promise((resolve) => {
    const end = (text?: string) => {
      clearTimeout(timer);
      worker.off('message', onMessage).off('disconnect', end);
      resolve(text);
    };
    const timer = setTimeout(end, withinMs);
    const onMessage = (message: FromWorker) => {
      if (message.kind === 'metrics' && message.id === id) end(message.text);
    };
    worker.on('message', onMessage).on('disconnect', end);
    worker.send({ kind: 'metrics', id }, (error) => {
      if (error) end();
    });
  });
}
