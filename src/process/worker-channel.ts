import cluster, { type Worker } from 'node:cluster';
import type { Environment } from '../config/environment.ts';

/** How long a worker may take to tell its metrics, in ms: well below the 10 s that Prometheus waits for all of them. */
const METRICS_MS = 3_000;

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

/** What a worker does when its primary says so. */
export interface WorkerDuties {
  reload(): void;
  stop(signal: StopSignal): void;
  metricsText(): Promise<string>;
}

/**
 * In a worker: asks the primary for what the configuration is read from. That does not come as the environment of
 * the process, which the system shows and hands on: there are secrets in it. What comes before a worker listens to
 * it is lost, so the worker asks.
 */
export function askForEnvironment(): Promise<Environment> {
  return new Promise((resolve) => {
    const onMessage = (message: ToWorker) => {
      if (message.kind !== 'start') return;
      cluster.worker?.off('message', onMessage);
      resolve(message.environment);
    };
    cluster.worker?.on('message', onMessage);
    say({ kind: 'started' });
  });
}

/** In a worker: does from now on what the primary says. */
export function obeyPrimary(duties: WorkerDuties): void {
  cluster.worker?.on('message', (message: ToWorker) => {
    if (message.kind === 'reload') duties.reload();
    else if (message.kind === 'stop') duties.stop(message.signal);
    else if (message.kind === 'metrics') {
      const { id } = message;
      // Without an answer, the primary goes on without it.
      duties.metricsText().then(
        (text) => say({ kind: 'metrics', id, text }),
        () => {},
      );
    }
  });
}

function say(message: FromWorker): void {
  // A primary that is gone ends this process by itself.
  cluster.worker?.send(message, () => {});
}

/** In the primary: tells `worker` something. One that is gone, or that does not listen yet, misses it. */
export function tell(worker: Worker, message: Exclude<ToWorker, { kind: 'metrics' }>): void {
  if (worker.isConnected()) worker.send(message, () => {});
}

/** In the primary: has `worker` told its environment as soon as it asks. */
export function tellEnvironment(worker: Worker, environment: Environment): void {
  worker.on('message', (message: FromWorker) => {
    if (message.kind === 'started') tell(worker, { kind: 'start', environment });
  });
}

let lastId = 0;

/** In the primary: the metrics of `worker`; `undefined` if it does not tell them in `withinMs`, or ends. */
export function metricsOf(worker: Worker, withinMs = METRICS_MS): Promise<string | undefined> {
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
