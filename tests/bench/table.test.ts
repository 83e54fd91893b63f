import { describe, expect, test } from '@jest/globals';
import { numberText, ratioText } from '../../bench/report/format.ts';
import { consoleTable, markdownTable, summaryTable } from '../../bench/report/table.ts';
import { figureOf } from '../../bench/support/statistics.ts';
import { samplePeer, sampleResults } from './sample-results.ts';

/** The cells of the row of `peer` in each table of `markdown`, in order. */
function cellsOf(markdown: string, peer: string): string[][] {
  return markdown
    .split('\n')
    .filter((line) => line.startsWith(`| ${peer} |`))
    .map((line) => line.slice(2, -2).split(' | ').slice(1));
}

/** The headings of each table of `markdown`. */
function headingsOf(markdown: string): string[][] {
  return [...markdown.matchAll(/^\| \| (.*) \|$/gm)].map(([, headings = '']) => headings.split(' | '));
}

describe('numbers', () => {
  test('have the digits asked for, commas between thousands, and no minus before zero', () => {
    expect(numberText(1_234_567.891, 1)).toBe('1,234,567.9');
    expect(numberText(871, 0)).toBe('871');
    expect(numberText(0.0454, 3)).toBe('0.045');
    expect(numberText(-0.0001, 3)).toBe('0.000');
    expect(numberText(-0.25, 2)).toBe('-0.25');
  });

  test('have about three significant digits as ratios', () => {
    const ratio = (one: number, other: number) => ratioText(figureOf([one]), figureOf([other]));
    expect([ratio(1, 3), ratio(9.99, 1), ratio(9.999, 1), ratio(99.96, 1), ratio(1_234, 1)]).toEqual([
      '0.33',
      '9.99',
      '10.0',
      '100',
      '1,234',
    ]);
    expect([ratio(1, 1_000), ratio(0, 1)]).toEqual(['<0.01', '0.00']);
  });
});

describe('the tables in Markdown', () => {
  const markdown = markdownTable(sampleResults());

  test('have median (min–max) in a cell, with the digits of the figure', () => {
    const [cpu, delay] = cellsOf(markdown, 'nginx');
    expect(cpu).toEqual(['40.0 (38.0–44.0)', '85 (81–94)', '900 (855–990)']);
    expect(delay?.[0]).toBe('0.045 (0.043–0.050)');
    expect(cellsOf(markdown, '**bot-relay with Redis**')[0]?.[1]).toBe('1,204 (1,144–1,324)');
  });

  test('have the ratios of medians to each reference, also if higher is better', () => {
    const [, , , , , toBare, , toNginx] = cellsOf(markdown, '**bot-relay**');
    expect(toBare?.slice(0, 3)).toEqual(['1.00', '1.16', '1.00']);
    expect(toNginx?.slice(0, 3)).toEqual(['1.55', '7.06', '0.65']);
    expect(markdown.indexOf('**Ratio to http-proxy-middleware 4**')).toBeLessThan(
      markdown.indexOf('**Ratio to nginx**'),
    );
    expect(markdown).toContain('↓: lower is better, ↑: higher is better.');
  });

  test('say what is missing and why, escaped for Markdown', () => {
    const [, , , memory] = cellsOf(markdown, '@fastify/http-proxy');
    expect(memory).toEqual(['–', '–', '–']);
    expect(markdown.split('\n').at(-1)).toBe(
      '- @fastify/http-proxy: does not close what its clients leave, so that 1,000 \\| 5,000 \\<open\\> streams never end',
    );
  });

  test('have what the project aims at, with the ratios of the two figures of each round', () => {
    const off = {
      ...samplePeer('bot-relay, JOIN=off', {}),
      figures: { cpuPerMessage: figureOf([200, 240, 300]) },
    };
    const naive = { ...samplePeer('naive stack', {}), figures: { cpuPerMessage: figureOf([400, 400, 600]) } };
    const on = { ...samplePeer('bot-relay', {}), figures: { cpuPerMessage: figureOf([220, 240]) } };
    const made = markdownTable(sampleResults([off, naive, on]));
    expect(made).toContain('**Aims of bot-relay, JOIN=off**');
    expect(cellsOf(made, 'CPU per message / naive stack')).toEqual([['0.50 (0.50–0.60)', '0.45']]);
    // A round of one of the two is missing.
    expect(cellsOf(made, 'CPU per message / bot-relay, JOIN=off')).toEqual([['–', '1.1']]);
    expect(made).toContain('Under Aims, the ratio is of the two figures of each round');
    expect(markdownTable(sampleResults([off]))).not.toContain('Aims');
  });

  test('have only the figures that were asked for, and the notes of peers that lack one of them', () => {
    const results = sampleResults();
    expect(headingsOf(markdownTable(results, ['throughput']))).toEqual([
      ['carried per CPU second, MB ↑'],
      ['carried per CPU second ↑'],
      ['carried per CPU second ↑'],
    ]);
    expect(markdownTable(results, ['throughput'])).not.toContain('never end');
    expect(markdownTable(results, ['throughput', 'memory5000'])).toContain('never end');
  });
});

describe('the summary', () => {
  test('has medians, each beside its ratio to the first of the references', () => {
    const summary = summaryTable(sampleResults());
    expect(cellsOf(summary, '**bot-relay**')).toEqual([
      ['62.0', '1.00', '600', '1.16', '55.0', '1.15', '0.130', '1.04'],
    ]);
    expect(headingsOf(summary)[0]?.slice(0, 3)).toEqual([
      'CPU per event, µs ↓',
      'ratio',
      'CPU per message, µs ↓',
    ]);
    expect(summary).toContain('ratios to those of http-proxy-middleware 4. ↓: lower is better.');
    expect(summary).toContain('- @fastify/http-proxy: does not close');
  });
});

describe('the tables in a terminal', () => {
  const lines = consoleTable(sampleResults()).split('\n');

  test('have the same content as those in Markdown', () => {
    const told = (text: string) => text.replace(/[\\*|]/g, '').match(/\d[\d.,]* \([^)]*\)/g);
    expect(told(lines.join(' '))).toEqual(told(markdownTable(sampleResults())));
    expect(lines).toContain('Ratio to nginx');
    expect(lines.join(' ')).toContain('– @fastify/http-proxy: does not close');
  });
});
