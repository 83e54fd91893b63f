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
  test('are those of the results that are kept', () => {
    expect(driftOf()).toEqual([]);
  });
});

describe('a section of a document', () => {
  const text =
    'before\n<!-- bench:a -->\nold\n<!-- /bench:a -->\nafter\n<!-- bench:b -->\n<!-- /bench:b -->\n';

  test('is replaced, and nothing around it', () => {
    const replaced = withSection(text, 'a', 'new');
    expect(replaced).toBe(text.replace('old', '\nnew\n'));
    expect(withSection(replaced, 'a', 'new')).toBe(replaced);
    expect(withSection(text, 'b', "$& $'")).toContain("<!-- bench:b -->\n\n$& $'\n\n<!-- /bench:b -->\n");
  });

  test.each([
    ['neither is there', 'text'],
    ['there is no end', '<!-- bench:a -->'],
    ['there is no beginning', '<!-- /bench:a -->'],
    ['they are in the wrong order', '<!-- /bench:a --> <!-- bench:a -->'],
    ['there are two beginnings', '<!-- bench:a --> <!-- bench:a --> <!-- /bench:a -->'],
    ['one beginning is after the end', '<!-- bench:a --> <!-- /bench:a --> <!-- bench:a -->'],
    ['there are two ends', '<!-- bench:a --> <!-- /bench:a --> <!-- /bench:a -->'],
    ['one end is before the beginning', '<!-- /bench:a --> <!-- bench:a --> <!-- /bench:a -->'],
    ['they are of another section', '<!-- bench:ab --> <!-- /bench:ab -->'],
  ])('is nowhere if %s', (_, text) => {
    expect(() => withSection(text, 'a', 'new')).toThrow(
      'one <!-- bench:a --> here, and one <!-- /bench:a -->',
    );
  });
});

describe('the report', () => {
  const results = sampleResults();
  const README = 'Costs:\n\n<!-- bench:summary -->\n<!-- /bench:summary -->\n\nThe end.\n';
  const FIGURES = 'Figures:\n\n<!-- bench:tables -->\n<!-- /bench:tables -->\n';
  let root = '';
  const read = (path: string) => readFileSync(join(root, path), 'utf8');
  const write = (path: string, text: string) => writeFileSync(join(root, path), text);

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'report-'));
    mkdirSync(join(root, 'bench'));
    write('README.md', README);
    write('bench/README.md', FIGURES);
  });
  afterEach(() => rmSync(root, { recursive: true }));

  test('keeps the results as they are, to be read by people, too', () => {
    writeReport(results, root);
    expect(readResults(root)).toEqual(results);
    expect(read('bench/results.json')).toContain('\n          "rounds": [40, 38, 44]\n');
  });

  test('keeps every character of a text', () => {
    const machine = 'odd [\n1,\n 2\n] "quoted" [ 3 ]';
    writeReport({ ...results, machine }, root);
    expect(readResults(root)?.machine).toBe(machine);
  });

  test('has all tables in one document, the summary in the other, and a chart', () => {
    writeReport(results, root);
    expect(read('bench/README.md')).toBe(withSection(FIGURES, 'tables', markdownTable(results)));
    expect(read('README.md')).toBe(withSection(README, 'summary', summaryTable(results)));
    expect(read('bench/results.svg')).toBe(chart(results));
    expect(driftOf(root)).toEqual([]);
  });

  test('replaces what an earlier run has left', () => {
    writeReport(results, root);
    writeReport({ ...results, peers: results.peers.slice(1) }, root);
    expect(driftOf(root)).toEqual([]);
    expect(read('README.md')).not.toContain('| nginx |');
    expect(read('README.md')).toContain('The end.');
  });

  test('keeps the results, and whatever else has a place, before it says what has none', () => {
    write('bench/README.md', 'Figures:\n');
    expect(() => writeReport(results, root)).toThrow(
      'bench/README.md: There should be one <!-- bench:tables -->',
    );
    expect(readResults(root)).toEqual(results);
    expect(read('README.md')).toContain('| nginx |');
    expect(read('bench/README.md')).toBe('Figures:\n');
  });

  test('has nothing to drift from before there are results', () => {
    expect(driftOf(root)).toEqual([]);
    write('README.md', 'No markers.');
    expect(driftOf(root)).toEqual([]);
  });

  test.each([
    ['README.md', '62.0', '61.0'],
    ['README.md', '<!-- bench:summary -->', ''],
    ['bench/README.md', '(38.0–44.0)', '(38.0–43.0)'],
    ['bench/README.md', '<!-- /bench:tables -->', ''],
    ['bench/results.svg', '>62.0<', '>61.0<'],
  ])('has drifted if %s has not %s but "%s"', (path, right, wrong) => {
    writeReport(results, root);
    const text = read(path);
    expect(text).toContain(right);
    write(path, text.replace(right, wrong));
    expect(driftOf(root).map((fault) => fault.split(':')[0])).toEqual([path]);
  });

  test('says which document has lost its place', () => {
    writeReport(results, root);
    write('README.md', README.replace('<!-- /bench:summary -->', ''));
    expect(driftOf(root)).toEqual([
      'README.md: There should be one <!-- bench:summary --> here, and one <!-- /bench:summary --> after it',
    ]);
  });

  test('has drifted in all its parts if the results are others', () => {
    writeReport(results, root);
    write('bench/results.json', read('bench/results.json').replaceAll('"median": 40,', '"median": 41,'));
    expect(driftOf(root)).toHaveLength(3);
    rmSync(join(root, 'bench/results.svg'));
    expect(driftOf(root)).toHaveLength(3);
  });
});
