import type { Found } from '../brains/steps.ts';
import type { Database } from '../settings/database.ts';
import { SettingsError } from '../settings/settings-error.ts';
import { sourceOf } from './documents.ts';
import { type EmbeddingModel, unitVectors } from './embedding-model.ts';
import { projectVectors, type Vectors } from './project-vectors.ts';
import { firstCharacters } from './split.ts';

export interface SearchOptions {
  readonly model: EmbeddingModel;
  readonly signal: AbortSignal;
}

const MAX_FOUND = 5;
/** How many characters of a question are searched for. */
const MAX_QUERY = 2000;

/**
 * Makes the search of the passages of a project that are nearest to a question, the nearest first: exact, by the cosine
 * of each piece's vector to the question's, which must be above 0. It throws a SettingsError if the model is not the one that the documents were indexed with.
 */
export function searcher(database: Database) {
  const vectorsOf = projectVectors(database);
  return async (projectId: string, query: string, { model, signal }: SearchOptions): Promise<Found[]> => {
    const text = firstCharacters(query.trim(), MAX_QUERY);
    // Asked before, so that nothing is paid in vain, and after, since they may have changed meanwhile.
    if (text === '' || !(await vectorsOf(projectId, model.model))) return [];
    const [question] = unitVectors(await model.embed([text], 'query', signal));
    const vectors = await vectorsOf(projectId, model.model);
    if (!vectors || !question) return [];
    if (question.length !== vectors.dimensions)
      throw new SettingsError('The embedding model has changed its dimensions. Index all documents again.');
    return nearest(vectors, question).flatMap((id) => foundOf(database, id));
  };
}

/** The ids of the nearest pieces, the nearest first. Its loops are plain, which halves its time. */
function nearest({ ids, values, dimensions }: Vectors, question: Float32Array): number[] {
  const best: { place: number; score: number }[] = [];
  for (let place = 0; place < ids.length; place += 1) {
    const score = product(values, place * dimensions, question);
    const least = best.length < MAX_FOUND ? 0 : (best.at(-1)?.score ?? 0);
    if (score <= least) continue;
    best.push({ place, score });
    best.sort((one, other) => other.score - one.score);
    best.length = Math.min(best.length, MAX_FOUND);
  }
  return best.flatMap(({ place }) => ids[place] ?? []);
}

/** The scalar product of a vector, and of as many values from `from` on. */
function product(values: Float32Array, from: number, vector: Float32Array): number {
  let sum = 0;
  for (let at = 0; at < vector.length; at += 1) sum += (values[from + at] as number) * (vector[at] as number);
  return sum;
}

/** A piece with its source; none if it was removed by another process. */
function foundOf(database: Database, id: number): Found[] {
  const select = `SELECT name, heading, pieces.text AS text FROM pieces
    JOIN documents ON documents.id = document_id WHERE pieces.id = ?`;
  return database
    .all<{ name: string; heading: string; text: string }>(select, id)
    .map(({ name, heading, text }) => ({ text: text.trim(), source: sourceOf(name, heading) }));
}
