import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { sectionOf, tablesOf } from './support/markdown.ts';
import { ROOT } from './support/sources.ts';

/** What one core of an instance carries in a second: short messages and usual ones; and streams in its memory. */
const INSTANCE = { short: 1_000_000 / 1_000, usual: 1_000_000 / (1_000 + 200 * 80), streams: 5_900 };
/** What a master gives in each second, in µs. */
const MASTER_US = 700_000;

const text = readFileSync(join(ROOT, 'docs/performance.md'), 'utf8');
const [plan, measured] = tablesOf(sectionOf(text, '## Many instances'));
const costs = new Map(measured?.rows.map(([name = '', ...us]) => [name, us.map(Number)]));

test('what many instances carry is calculated from the measured costs', () => {
  const expected = plan?.rows.map(([instances = '', masters = '']) => {
    const server = masters === '10' || masters === '3' ? 'a cluster of three masters' : 'one server';
    const least = (ofInstance: number, us: number) => {
      const [carried, allowed] = [
        Number(instances) * ofInstance,
        (Number.parseInt(masters, 10) * MASTER_US) / us,
      ];
      const count = Math.floor(Math.min(carried, allowed)).toLocaleString('en');
      return allowed < carried ? `${count} **R**` : count;
    };
    const cells = ['on', 'off'].flatMap((join) => {
      const [message = 0, event = 0, stream = 0] = costs.get(`${server}, \`JOIN=${join}\``) ?? [];
      const usual = least(INSTANCE.usual, message + 200 * event + 20 * stream);
      return [least(INSTANCE.short, message), usual, least(INSTANCE.streams, stream)];
    });
    return [instances, masters, ...cells.slice(0, 5)];
  });
  expect(expected).toHaveLength(7);
  expect(plan?.rows).toEqual(expected);
});
