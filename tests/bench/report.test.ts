import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { chart } from '../../bench/report/chart.ts';
import { withSection } from '../../bench/report/section.ts';
import { markdownTable, summaryTable } from '../../bench/report/table.ts';
import { driftOf, readResults, writeReport } from '../../bench/report/write.ts';
import { sampleResults } from './sample-results.ts';

describe('the figures in the documents', () => {
  test('are those of bench/results.json', () => {
    expect(driftOf()).toEqual([]);
  });
});

describe('a section of a document', () => {
  const text =
    'before\n<!-- bench:a -->\nold\n<!-- /bench:a -->\nafter\n<!-- bench:b -->\n<!-- /bench:b -->\n';

  test('is replaced, and the text around it stays', () => {
    const replaced = withSection(text, 'a', 'new');
    expect(replaced).toBe(text.replace('old', '\nnew\n'));
    expect(withSection(replaced, 'a', 'new')).toBe(replaced);
    expect(withSection(text, 'b', "$& $'")).toContain("<!-- bench:b -->\n\n$& $'\n\n<!-- /bench:b -->\n");
  });

  test.each([
    ['neither is there', 'text'],
    ['there is no end', '<!-- bench:a -->'],
    ['they are in the wrong order', '<!-- /bench:a --> <!-- bench:a -->'],
    ['there are two beginnings', '<!-- bench:a --> <!-- bench:a --> <!-- /bench:a -->'],
    ['they are of another section', '<!-- bench:ab --> <!-- /bench:ab -->'],
  ])('is not found if %s', (_, text) => {
    expect(() => withSection(text, 'a', 'new')).toThrow(
      'one <!-- bench:a --> here, and one <!-- /bench:a -->',
    );
  });
});

describe('the report', () => {
  const results = sampleResults();
  const SUMMARY = 'Costs:\n\n<!-- bench:summary -->\n<!-- /bench:summary -->\n\nThe end.\n';
  const SUMMARY_PATH = 'docs/performance.md';
  const FIGURES = 'Figures:\n\n<!-- bench:tables -->\n<!-- /bench:tables -->\n';
  let root = '';
  const read = (path: string) => readFileSync(join(root, path), 'utf8');
  const write = (path: string, text: string) => writeFileSync(join(root, path), text);

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'report-'));
    for (const folder of ['bench', 'docs']) mkdirSync(join(root, folder));
    write(SUMMARY_PATH, SUMMARY);
    write('bench/README.md', FIGURES);
  });
  afterEach(() => rmSync(root, { recursive: true }));

  test('keeps the results unchanged, in a form that people can read', () => {
    writeReport(results, root);
    expect(readResults(root)).toEqual(results);
    expect(read('bench/results.json')).toContain('\n          "rounds": [40, 38, 44]\n');
  });

  test('writes all tables to one document, the summary to the other, and a chart', () => {
    writeReport(results, root);
    expect(read('bench/README.md')).toBe(withSection(FIGURES, 'tables', markdownTable(results)));
    expect(read(SUMMARY_PATH)).toBe(withSection(SUMMARY, 'summary', summaryTable(results)));
    expect(read('bench/results.svg')).toBe(chart(results));
    expect(driftOf(root)).toEqual([]);
  });

  test('writes everything that it can before it reports a missing section', () => {
    write('bench/README.md', 'Figures:\n');
    expect(() => writeReport(results, root)).toThrow(
      'bench/README.md: There should be one <!-- bench:tables -->',
    );
    expect(readResults(root)).toEqual(results);
    expect(read(SUMMARY_PATH)).toContain('| nginx |');
    expect(read('bench/README.md')).toBe('Figures:\n');
  });

  test.each([
    [SUMMARY_PATH, '62.0', '61.0'],
    [SUMMARY_PATH, '<!-- bench:summary -->', ''],
    ['bench/README.md', '(38.0–44.0)', '(38.0–43.0)'],
    ['bench/README.md', '<!-- /bench:tables -->', ''],
    ['bench/results.svg', '>62.0<', '>61.0<'],
  ])('differs if %s has, instead of %s, "%s"', (path, right, wrong) => {
    writeReport(results, root);
    const text = read(path);
    expect(text).toContain(right);
    write(path, text.replace(right, wrong));
    expect(driftOf(root).map((fault) => fault.split(':')[0])).toEqual([path]);
  });

  test('differs in all its parts if the results have changed', () => {
    writeReport(results, root);
    write('bench/results.json', read('bench/results.json').replaceAll('"median": 40,', '"median": 41,'));
    expect(driftOf(root)).toHaveLength(3);
    rmSync(join(root, 'bench/results.svg'));
    expect(driftOf(root)).toHaveLength(3);
  });
});
