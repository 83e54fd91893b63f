import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import { countDroppedLogLines } from './log-metrics.ts';
import { READY } from './metrics.ts';

/** The metrics of each worker by its number, in Prometheus's text format; `undefined` for one that does not answer. */
export type WorkersTexts = ReadonlyMap<number, string | undefined>;

/**
 * The metrics of all workers for one scrape: the series of the workers, with their numbers as the label `worker`, and
 * those of the primary's process and log, with the label `primary`. There are no sums: a sum falls when a worker is
 * replaced, which Prometheus takes for a reset. A worker that does not answer counts as not ready. Scrapes at the same
 * time share one reading, so that scrapes do not pile up behind a worker that hangs.
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

  async function readAll(): Promise<string> {
    const texts = await textsOf();
    ready.reset();
    for (const [worker, text] of texts) if (text === undefined) ready.set({ check: 'accepting', worker }, 0);
    return mergedText([...[...texts.values()].flatMap((text) => text ?? []), await own.metrics()]);
  }

  return {
    contentType: own.contentType,
    metrics() {
      scrape ??= readAll().finally(() => {
        scrape = undefined;
      });
      return scrape;
    },
  };
}

/** Merges several texts: one head for each metric, followed by the samples of all texts, as the format requires. */
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
