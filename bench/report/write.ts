import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chart } from './chart.ts';
import type { Results } from './results.ts';
import { withSection } from './section.ts';
import { markdownTable, summaryTable } from './table.ts';

/** Where the project lies that this file is part of. */
export const PROJECT = fileURLToPath(new URL('../..', import.meta.url));

const RESULTS = 'bench/results.json';

/** What is made of the results: each file's path, and what it should hold, given what it holds now. */
const MADE: readonly (readonly [path: string, make: (results: Results, now: string) => string])[] = [
  ['bench/results.svg', chart],
  ['bench/README.md', (results, now) => withSection(now, 'tables', markdownTable(results))],
  ['README.md', (results, now) => withSection(now, 'summary', summaryTable(results))],
];

/**
 * Keeps `results` in the project at `root`, and brings its chart and the tables of its documents up to them.
 * @throws Error that names every document without a place for its tables. By then the results are written,
 * and whatever else could be.
 */
export function writeReport(results: Results, root = PROJECT): void {
  writeFileSync(join(root, RESULTS), resultsText(results));
  const failed = made(root, results).flatMap(({ path, should, fault }) => {
    if (should !== undefined) writeFileSync(join(root, path), should);
    return fault ?? [];
  });
  if (failed.length > 0) throw new Error(failed.join('\n'));
}

/** Writes `results` and their chart into `folder`, which is made if it is not there, and nothing else. */
export function saveReport(results: Results, folder: string): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'results.json'), resultsText(results));
  writeFileSync(join(folder, 'results.svg'), chart(results));
}

/** The results that the project at `root` keeps, or undefined if there are none. */
export function readResults(root = PROJECT): Results | undefined {
  const path = join(root, RESULTS);
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as Results) : undefined;
}

/** What in the project at `root` is not what its results give, a sentence each; nothing without results. */
export function driftOf(root = PROJECT): string[] {
  const results = readResults(root);
  if (!results) return [];
  return made(root, results).flatMap(
    ({ path, now, should, fault }) =>
      fault ??
      (now === should ? [] : [`${path}: differs from what ${RESULTS} gives; see bench/report/rewrite.ts`]),
  );
}

interface Made {
  readonly path: string;
  /** Empty if there is no such file. */
  readonly now: string;
  readonly should?: string;
  /** Why there is nothing that it should hold. */
  readonly fault?: string;
}

function made(root: string, results: Results): Made[] {
  return MADE.map(([path, make]) => {
    const file = join(root, path);
    const now = existsSync(file) ? readFileSync(file, 'utf8') : '';
    try {
      return { path, now, should: make(results, now) };
    } catch (error) {
      return { path, now, fault: `${path}: ${(error as Error).message}` };
    }
  });
}

/** As JSON to be read by people, too: the rounds of a figure in one line. */
function resultsText(results: Results): string {
  const text = JSON.stringify(results, null, 2).replace(/\[\n[^[\]{}"]+\]/g, (numbers) =>
    numbers.replace(/\s+/g, ' ').replace('[ ', '[').replace(' ]', ']'),
  );
  return `${text}\n`;
}
