import { Counter, type Registry } from 'prom-client';

/** Adds the metric of dropped log lines; `total` is read at every scrape. */
export function countDroppedLogLines(registry: Registry, total: () => number): void {
  new Counter({
    name: 'bot_relay_log_lines_dropped_total',
    help: 'Log lines that were dropped because the reader of the log was too slow',
    registers: [registry],
    collect() {
      this.reset();
      this.inc(total());
    },
  });
}
