import type { Figure, FigureName, Results } from '../report/results.ts';
import { figureOf } from './statistics.ts';

type DirectName = keyof Results['direct'];

/** Collects the figures of one peer over all rounds. */
export interface FigureCollector {
  readonly name: string;
  add(figures: Readonly<Partial<Record<FigureName | DirectName, number>>>): void;
  /** Adds what `measure` returns. If it throws, adds the error as a note. */
  try(what: string, measure: () => Promise<Parameters<FigureCollector['add']>[0] | undefined>): Promise<void>;
  note(note: string): void;
  figures(): Partial<Record<FigureName | DirectName, Figure>>;
  notes(): readonly string[];
}

/** Makes the collector of the figures of the peer `name`. */
export function collectFigures(name: string): FigureCollector {
  const rounds = new Map<FigureName | DirectName, number[]>();
  const notes = new Set<string>();
  const add: FigureCollector['add'] = (figures) => {
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
