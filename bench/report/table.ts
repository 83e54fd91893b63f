import type { PartCost } from '../figures/profile.ts';
import { MISSING, numberText } from './format.ts';
import { aimGrids, type Grid, ratioGrids, SUMMARY, spreadGrids, summaryGrid } from './grids.ts';
import { absentReferences, circumstances, fewerRounds, legend, notes } from './remarks.ts';
import { type FigureName, REFERENCES, type Results } from './results.ts';
import { wrap } from './wrap.ts';

/** Characters in a line of the terminal. */
const TERMINAL = 100;
const COLUMN_GAP = '  ';

/**
 * Tables in Markdown with a row per peer: `median (min–max)` of each figure, then the ratios of the medians to
 * each reference, what this project aims at, how to read them, and why figures are missing. Of `figures` alone if they are given;
 * else of all, by theme, with where and when they were taken.
 */
export function markdownTable(results: Results, figures?: readonly FigureName[]): string {
  const aims = figures ? [] : aimGrids(results);
  const grids = [...spreadGrids(results, figures), ...ratioGrids(results, figures), ...aims].map(
    markdownGrid,
  );
  const all = figures ? [] : [...fewerRounds(results), ...circumstances(results)];
  const remarks = [...legend(results), ...all].map(escapeMarkdown);
  return [...grids, ...remarks, ...markdownNotes(notes(results, figures))].join('\n\n');
}

/**
 * The most important figures in Markdown: medians, and ratios to the first reference. The spread is in the chart and in
 * the tables of all figures.
 */
export function summaryTable(results: Results): string {
  const absent = absentReferences(results).filter((remark) => remark.startsWith(REFERENCES[0]));
  const remark = `Medians of ${results.rounds} rounds, and their ratios to those of ${REFERENCES[0]}. ↓: lower is better.`;
  const remarks = [remark, ...absent].map(escapeMarkdown);
  return [markdownGrid(summaryGrid(results)), ...remarks, ...markdownNotes(notes(results, SUMMARY))].join(
    '\n\n',
  );
}

/** What each part of the code costs for one message, in Markdown; parts under a hundredth of the whole are added up. */
export function profileTable(costs: readonly PartCost[]): string {
  const sum = (of: readonly PartCost[]) => ({
    us: of.reduce((all, { us }) => all + us, 0),
    kib: of.reduce((all, { kib }) => all + kib, 0),
  });
  const whole = sum(costs);
  const isSmall = ({ us, kib }: PartCost) => us < whole.us / 100 && kib < whole.kib / 100;
  const rows = [
    ...costs.filter((cost) => !isSmall(cost)),
    { part: 'all others', ...sum(costs.filter(isSmall)) },
    { part: '**a message**', ...whole },
  ].map(({ part, us, kib }) => `| ${part} | ${numberText(us, 0)} | ${numberText(kib, 1)} |`);
  return ['| part | CPU per message, µs | allocated per message, KiB |', '|---|---:|---:|', ...rows].join(
    '\n',
  );
}

/** The content of `markdownTable` with all figures, for a terminal of 100 columns. */
export function consoleTable(results: Results): string {
  const grids = [...spreadGrids(results), ...ratioGrids(results), ...aimGrids(results)].map(consoleGrid);
  const remarks = [...legend(results), ...fewerRounds(results), ...circumstances(results)];
  const why = notes(results).map((note) => `${MISSING} ${note}`);
  return [...grids, [...remarks, ...why].flatMap((remark) => wrap(remark, TERMINAL)).join('\n')].join('\n\n');
}

function markdownGrid({ title, headings, rows }: Grid): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  const name = (text: string, own: boolean) => (own ? `**${escapeMarkdown(text)}**` : escapeMarkdown(text));
  return [
    ...(title ? [`**${escapeMarkdown(title)}**`, ''] : []),
    `|${['', ...headings.map(escapeMarkdown)].join(' | ')} |`,
    `|---|${headings.map(() => '---:|').join('')}`,
    ...rows.map((row) => line([name(row.name, row.own), ...row.cells.map(escapeMarkdown)])),
  ].join('\n');
}

function markdownNotes(lines: readonly string[]): string[] {
  return lines.length > 0
    ? [
        [
          `Why figures are missing (${MISSING}):`,
          '',
          ...lines.map((line) => `- ${escapeMarkdown(line)}`),
        ].join('\n'),
      ]
    : [];
}

/** Makes `text` one line that Markdown shows as it is, also in a cell. */
function escapeMarkdown(text: string): string {
  return text.replace(/\s+/g, ' ').replace(/[\\|<>*_`[\]]/g, '\\$&');
}

function consoleGrid({ title, headings, rows }: Grid): string {
  const first = Math.max(...rows.map(({ name }) => name.length));
  const columns = headings.map((heading, index) => {
    const cells = rows.map((row) => row.cells[index] ?? MISSING);
    const width = Math.max(...[...heading.split(' '), ...cells].map(({ length }) => length));
    return { width, cells, heading: wrap(heading, width) };
  });
  const height = Math.max(...columns.map(({ heading }) => heading.length));
  const line = (name: string, cellOf: (column: (typeof columns)[number]) => string | undefined) =>
    [name.padEnd(first), ...columns.map((one) => (cellOf(one) ?? '').padStart(one.width))]
      .join(COLUMN_GAP)
      .trimEnd();
  return [
    ...(title ? [title] : []),
    // The last line of each heading stands on the first row, however many lines there are.
    ...Array.from({ length: height }, (_, row) =>
      line('', ({ heading }) => heading[row - height + heading.length]),
    ),
    ...rows.map(({ name }, row) => line(name, ({ cells }) => cells[row])),
  ].join('\n');
}
