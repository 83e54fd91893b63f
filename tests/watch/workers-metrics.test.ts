import { describe, expect, test } from '@jest/globals';
import { createMetrics } from '../../src/watch/metrics.ts';
import { mergedText, workersMetrics } from '../../src/watch/workers-metrics.ts';
import { samplesOf } from '../support/metric-samples.ts';

describe('the metrics of several workers', () => {
  test('have one head for each metric, with unchanged samples', () => {
    const head = (name: string) => `# HELP ${name} What it is\n# TYPE ${name} gauge\n`;
    const one = `${head('a')}a{worker="1"} 1\n\n${head('b')}b{worker="1",text="# HELP not"} Nan\n`;
    const other = `${head('b')}b{worker="2"} +Inf\n\n${head('c')}\n${head('a')}a{worker="2"} 2\n`;
    expect(mergedText([one, other])).toBe(
      [
        `${head('a')}a{worker="1"} 1\na{worker="2"} 2\n`,
        `${head('b')}b{worker="1",text="# HELP not"} Nan\nb{worker="2"} +Inf\n`,
        head('c'),
      ].join('\n'),
    );
    expect(mergedText([])).toBe('');
  });

  test('show each worker once, and those that do not answer as not ready', async () => {
    const { registry, readAtScrape } = createMetrics(['0123abcd'], 2);
    readAtScrape({
      checks: { accepting: () => true },
      openMessages: () => 7,
      runBytes: () => 0,
      storedRunBytes: async () => 0,
    });
    let texts = new Map([[1, undefined as string | undefined]]).set(2, await registry.metrics());
    const scrape = workersMetrics(async () => texts);
    const ready = async () =>
      samplesOf(await scrape.metrics()).filter(({ name }) => name === 'bot_relay_ready');
    const sample = (worker: string, value: number) => ({
      name: 'bot_relay_ready',
      labels: { check: 'accepting', worker },
      value,
    });
    expect(await ready()).toEqual([sample('2', 1), sample('1', 0)]);
    // A worker that is gone has no series any more.
    texts = new Map([[2, await registry.metrics()]]);
    expect(await ready()).toEqual([sample('2', 1)]);
  });
});
