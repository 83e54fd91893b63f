import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import { countDroppedLogLines } from './log-metrics.ts';
import { READY } from './metrics.ts';

/** The metrics of each worker by its number, in Prometheus's text format; `undefined` for one that does not answer. */
export type WorkersTexts = ReadonlyMap<number, string | undefined>;

/**
 * What a scrape of all workers together says: their series, which carry their numbers as the label `worker`, and
 * those of the primary's own process and log, as `primary`. Nothing is summed up: a sum falls when a worker is replaced,
 * which reads as a reset of everything. A worker that does not answer counts as one that is not ready. Who asks while
 * the workers are asked already gets the same answer, so that what waits for one that is stuck does not pile up.
 */
export function workersMetrics(
  textsOf: () => Promise<WorkersTexts>,
  droppedLogLines = () => 0,
): Pick<Registry, 'contentType' | 'metrics'> {
  const own = new Registry();
  own.setDefaultLabels({ worker: 'primary' });
  collectDefaultMetrics({ register: own });
  countDroppedLogLines(own, droppedLogLines);
  const ready = new Gauge({ ...READY, labelNames: [...READY.labelNames, 'worker'], registers: [own] });
  let scrape: Promise<string> | undefined;

  async function wholeText(): Promise<string> {
    const texts = await textsOf();
    ready.reset();
    for (const [worker, text] of texts) if (text === undefined) ready.set({ check: 'accepting', worker }, 0);
    return mergedText([...[...texts.values()].flatMap((text) => text ?? []), await own.metrics()]);
  }

  return {
    contentType: own.contentType,
    metrics() {
      scrape ??= wholeText().finally(() => {
        scrape = undefined;
      });
      return scrape;
    },
  };
}

/** The samples of several texts below one head for each metric, as the format demands. */
export function mergedText(texts: readonly string[]): string {
  const samplesOf = new Map<string, string[]>();
  for (const text of texts) {
    for (const metric of text.split(/^(?=# HELP )/m)) {
      const [help = '', type = '', ...samples] = metric.trimEnd().split('\n');
      if (help === '') continue;
      const head = `${help}\n${type}`;
      samplesOf.set(head, [...(samplesOf.get(head) ?? []), ...samples]);
    }
  }
  return [...samplesOf].map(([head, samples]) => `${[head, ...samples].join('\n')}\n`).join('\n');
}
