import { readFileSync, writeFileSync } from 'node:fs';

export type Outcome = 'killed' | 'timed out' | 'survived' | 'not run';
export interface Result {
  readonly id: number;
  readonly room: string;
  /** The file and the line. */
  readonly place: string;
  readonly from: string;
  readonly to: string;
  readonly outcome: Outcome;
}

const OUTCOMES: readonly Outcome[] = ['killed', 'timed out', 'survived', 'not run'];
const noticed = (outcome: Outcome) => outcome === 'killed' || outcome === 'timed out';

/** Prints the scores and the survivors, or writes them into bench/. */
export function record(all: readonly Result[], controls: readonly Outcome[], keep: boolean): void {
  const results = all.toSorted((one, other) => one.id - other.id);
  const rooms = [...Map.groupBy(results, ({ room }) => room), ['all', results] as const].map(([room, of]) => {
    const counts = OUTCOMES.map((outcome) => of.filter((result) => result.outcome === outcome).length);
    const score = Math.round((100 * of.filter(({ outcome }) => noticed(outcome)).length) / of.length);
    return [room, of.length, ...counts, `${score} %`];
  });
  const falseAlarms = controls.filter(noticed).length;
  const table = `| room | mutants | ${OUTCOMES.join(' | ')} | score |
|---|---:|---:|---:|---:|---:|---:|
${rooms.map((row) => `| ${row.join(' | ')} |`).join('\n')}

Of ${controls.length} runs without a change, ${falseAlarms} failed.`;
  const survivors = results
    .filter(({ outcome }) => !noticed(outcome))
    .map(({ place, from, to, outcome }) => `${place}: ${brief(from)} → ${brief(to)} (${outcome})`);
  console.log(`${table}\n\n${survivors.join('\n')}`);
  if (!keep) return;
  const kept = { columns: ['room', 'mutants', ...OUTCOMES, 'score'], rooms, falseAlarms, survivors };
  writeFileSync('bench/mutants/results.json', `${JSON.stringify(kept, null, 2)}\n`);
  const readme = readFileSync('bench/README.md', 'utf8');
  const place = /(<!-- mutants -->\n)[\s\S]*(<!-- \/mutants -->)/;
  writeFileSync('bench/README.md', readme.replace(place, `$1\n${table}\n\n$2`));
}

const brief = (text: string) => text.replace(/\s+/g, ' ').slice(0, 100);
