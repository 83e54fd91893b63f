import { describe, expect, test } from '@jest/globals';
import { numberText, ratioText } from '../../bench/report/format.ts';
import { THEMES } from '../../bench/report/grids.ts';
import { FIGURES } from '../../bench/report/results.ts';
import { consoleTable, markdownTable, summaryTable } from '../../bench/report/table.ts';
import { figureOf } from '../../bench/support/statistics.ts';
import { around, samplePeer, sampleResults } from './sample-results.ts';

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

  test('give no ratio if one is missing, or is noise around zero', () => {
    const one = figureOf([1]);
    expect(ratioText(undefined, one)).toBe('–');
    expect(ratioText(one, undefined)).toBe('–');
    expect(ratioText(one, figureOf([0]))).toBe('–');
    expect(ratioText(one, figureOf([-1]))).toBe('–');
    expect(ratioText(figureOf([-1]), one)).toBe('–');
  });
});

describe('the tables in Markdown', () => {
  const markdown = markdownTable(sampleResults());

  test('have every figure once with its unit and direction, and once per reference as a ratio', () => {
    expect(THEMES.flatMap(({ figures }) => figures).sort()).toEqual(Object.keys(FIGURES).sort());
    const headings = headingsOf(markdown)
      .flat()
      .filter((heading) => heading !== 'ratio' && heading !== 'at most');
    expect(headings).toHaveLength(3 * Object.keys(FIGURES).length);
    for (const { title, unit, better } of Object.values(FIGURES)) {
      const arrow = better === 'lower' ? '↓' : '↑';
      expect(headings.filter((heading) => heading === `${title}, ${unit} ${arrow}`)).toHaveLength(1);
      expect(headings.filter((heading) => heading === `${title} ${arrow}`)).toHaveLength(2);
    }
  });

  test('have a row per peer in each, as wide as the headings', () => {
    const widths = headingsOf(markdown).map(({ length }) => length);
    expect(widths).toEqual([3, 2, 2, 3, 2, 7, 5, 7, 5, 2]);
    for (const name of ['nginx', '@fastify/http-proxy', '**bot-relay**', '**bot-relay with Redis**'])
      expect(cellsOf(markdown, name).map(({ length }) => length)).toEqual(widths.slice(0, -1));
  });

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

  test('say when and where, of which versions, and what the added times are added to', () => {
    expect(markdown).toContain('Taken on 2026-03-04: a virtual machine with 2 cores');
    expect(markdown).toContain('Node 24.21.0.');
    expect(markdown).toContain('Versions: nginx (1.26.3), HAProxy (3.0.11), http-proxy-middleware 4 (4.2.1)');
    expect(markdown).toContain('delay of an event 0.110 (0.105–0.121) ms at p50');
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

  test('escape the names of peers', () => {
    const made = markdownTable(sampleResults([samplePeer('a | b\nc*', { aborts: 1 })]));
    expect(made).toContain('| a \\| b c\\* |');
  });

  test('say so if a reference was not measured', () => {
    const made = markdownTable(sampleResults([samplePeer('nginx', { aborts: 1 })]));
    expect(headingsOf(made)).toHaveLength(THEMES.length + 2);
    expect(made).toContain('http-proxy-middleware 4 was not measured: there are no ratios to it.');
    expect(made).not.toContain('nginx was not measured');
  });

  test('say which figures were not taken in every round', () => {
    const once = {
      ...samplePeer('slow', { aborts: 5 }),
      figures: { memory9000: figureOf([50]), aborts: around(5) },
    };
    const made = (more: Parameters<typeof sampleResults>[0]) => markdownTable(sampleResults(more));
    expect(made([once, samplePeer('nginx', { memory9000: 18 })])).toContain(
      'In 1 of 3 rounds only: memory per stream, 9,000 open (slow).',
    );
    expect(made([once])).toContain('9,000 open (every peer).');
    expect(markdown).not.toContain('rounds only');
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

  test('has no ratios without that reference, and says so', () => {
    const summary = summaryTable(sampleResults([samplePeer('undici', { cpuPerEvent: 57 })]));
    expect(cellsOf(summary, 'undici')).toEqual([['57.0', '–', '–', '–', '–', '–', '–', '–']]);
    expect(summary).toContain('http-proxy-middleware 4 was not measured');
  });
});

describe('the tables in a terminal', () => {
  const lines = consoleTable(sampleResults()).split('\n');

  test('fit into 100 columns', () => {
    expect(lines.filter(({ length }) => length > 100)).toEqual([]);
    expect(lines.filter((line) => line !== line.trimEnd())).toEqual([]);
  });

  test('align cells and headings in columns', () => {
    const start = lines.indexOf('CPU');
    expect(lines.slice(start, start + 5)).toEqual([
      'CPU',
      '                           CPU per event,  CPU per message, µs      carried per CPU',
      '                                     µs ↓                    ↓         second, MB ↑',
      'nginx                    40.0 (38.0–44.0)           85 (81–94)        900 (855–990)',
      'HAProxy                  31.0 (29.5–34.1)           87 (83–96)  1,161 (1,103–1,277)',
    ]);
  });

  test('have the same content as those in Markdown', () => {
    const told = (text: string) => text.replace(/[\\*|]/g, '').match(/\d[\d.,]* \([^)]*\)/g);
    expect(told(lines.join(' '))).toEqual(told(markdownTable(sampleResults())));
    expect(lines).toContain('Ratio to nginx');
    expect(lines.join(' ')).toContain('– @fastify/http-proxy: does not close');
  });
});
