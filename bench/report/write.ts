import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chart } from './chart.ts';
import type { Results } from './results.ts';
import { withSection } from './section.ts';
import { markdownTable, summaryTable } from './table.ts';

/** The folder of this project. */
export const PROJECT = fileURLToPath(new URL('../..', import.meta.url));

const RESULTS = 'bench/results.json';

/** The files that are made from the results: the path, and a function that makes the new text from the old one. */
const MADE: readonly (readonly [path: string, make: (results: Results, now: string) => string])[] = [
  ['bench/results.svg', chart],
  ['bench/README.md', (results, now) => withSection(now, 'tables', markdownTable(results))],
  ['docs/performance.md', (results, now) => withSection(now, 'summary', summaryTable(results))],
];

/**
 * Stores `results` in the project at `root`, and updates its chart and the tables of its documents.
 * @throws Error that names every document without a section for its tables, after all other files are written
 */
export function writeReport(results: Results, root = PROJECT): void {
  writeFileSync(join(root, RESULTS), resultsText(results));
  const failed = made(root, results).flatMap(({ path, should, fault }) => {
    if (should !== undefined) writeFileSync(join(root, path), should);
    return fault ?? [];
  });
  if (failed.length > 0) throw new Error(failed.join('\n'));
}

/** Writes `results` and their chart into `folder`, which is created if needed. */
export function saveReport(results: Results, folder: string): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'results.json'), resultsText(results));
  writeFileSync(join(folder, 'results.svg'), chart(results));
}

/** Keeps the table of a profile in docs/performance.md of the project at `root`. */
export function writeProfile(table: string, root = PROJECT): void {
  const file = join(root, 'docs/performance.md');
  writeFileSync(file, withSection(readFileSync(file, 'utf8'), 'profile', table));
}

/** The stored results of the project at `root`. */
export function readResults(root = PROJECT): Results {
  return JSON.parse(readFileSync(join(root, RESULTS), 'utf8')) as Results;
}

/** The files of the project at `root` that differ from its results, a sentence each. */
export function driftOf(root = PROJECT): string[] {
  return made(root, readResults(root)).flatMap(
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
  /** Why its text cannot be made. */
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

/** JSON that people can read, too: the rounds of a figure are in one line. */
function resultsText(results: Results): string {
  const text = JSON.stringify(results, null, 2).replace(/\[\n[^[\]{}"]+\]/g, (numbers) =>
    numbers.replace(/\s+/g, ' ').replace('[ ', '[').replace(' ]', ']'),
  );
  return `${text}\n`;
}
