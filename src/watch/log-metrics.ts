import { Counter, type Registry } from 'prom-client';

/** Counts the lines of the log that were dropped. `total` says how many, at every scrape. */
export function countDroppedLogLines(registry: Registry, total: () => number): void {
  new Counter({
    name: 'bot_relay_log_lines_dropped_total',
    help: 'Lines of the log that were dropped, since what reads them did not keep up',
    registers: [registry],
    collect() {
      this.reset();
      this.inc(total());
    },
  });
}
