import type { Figure, FigureName, Results } from '../report/results.ts';
import { figureOf } from './statistics.ts';

type DirectName = keyof Results['direct'];

/** What the rounds give, until it becomes results. */
export interface Samples {
  readonly name: string;
  add(figures: Readonly<Partial<Record<FigureName | DirectName, number>>>): void;
  /** Takes what `measure` returns; what it throws becomes a note. */
  try(what: string, measure: () => Promise<Parameters<Samples['add']>[0] | undefined>): Promise<void>;
  note(note: string): void;
  figures(): Partial<Record<FigureName | DirectName, Figure>>;
  notes(): readonly string[];
}

/** Collects the figures of the peer `name`, round by round. */
export function samples(name: string): Samples {
  const rounds = new Map<FigureName | DirectName, number[]>();
  const notes = new Set<string>();
  const add: Samples['add'] = (figures) => {
    for (const [figure, value] of Object.entries(figures) as [FigureName, number][])
      rounds.set(figure, [...(rounds.get(figure) ?? []), value]);
  };
  return {
    name,
    add,
    async try(what, measure) {
      try {
        add((await measure()) ?? {});
      } catch (error) {
        notes.add(`${what}: ${(error as Error).message}`);
      }
    },
    note: (note) => void notes.add(note),
    figures: () => Object.fromEntries([...rounds].map(([figure, values]) => [figure, figureOf(values)])),
    notes: () => [...notes],
  };
}
