import type { Database } from '../settings/database.ts';
import { SettingsError } from '../settings/settings-error.ts';

/** The vectors of a project's pieces, one after the other, each of length 1. */
export interface Vectors {
  /** Which change of the project's knowledge they are of. */
  readonly change: number;
  readonly dimensions: number;
  /** The ids of the pieces, in the order of their vectors. */
  readonly ids: readonly number[];
  readonly values: Float32Array;
}

/** The vectors of a project, which must be of this model; undefined if it has none. @throws SettingsError */
export type VectorsOf = (projectId: string, model: string) => Vectors | undefined;

/**
 * The vectors of projects: loaded at the first search, and again after a change, also one by another process. They stay
 * in memory, with 4 bytes for each dimension of each piece.
 */
export function projectVectors(database: Database): VectorsOf {
  const loaded = new Map<string, Vectors>();
  return (projectId, model) =>
    // What is checked and what is loaded must be of one moment.
    database.transaction(() => {
      const dimensions = checkedDimensions(database, projectId, model);
      const change = changeOf(database, projectId);
      const known = loaded.get(projectId);
      if (known && known.change === change) return known;
      for (const id of loaded.keys()) if (changeOf(database, id) === undefined) loaded.delete(id);
      if (change === undefined || dimensions === undefined) {
        loaded.delete(projectId);
        return;
      }
      const vectors = { change, dimensions, ...loadVectors(database, projectId, dimensions) };
      loaded.set(projectId, vectors);
      return vectors;
    });
}

function changeOf(database: Database, projectId: string): number | undefined {
  const text = 'SELECT change FROM knowledge_changes WHERE project_id = ?';
  return database.get<{ change: number }>(text, projectId)?.change;
}

/** The dimensions of all pieces of a project. @throws SettingsError if some are of another model */
function checkedDimensions(database: Database, projectId: string, model: string): number | undefined {
  const text = `SELECT DISTINCT model, dimensions FROM documents
    WHERE project_id = ? AND indexed_at IS NOT NULL`;
  const kinds = database.all<{ model: string; dimensions: number }>(text, projectId);
  const other = kinds.find((kind) => kind.model !== model);
  if (other)
    throw new SettingsError(
      `The embedding model is ${model}, but documents were indexed with ${other.model}. Index all documents again.`,
    );
  if (kinds.length > 1)
    throw new SettingsError('The embedding model has changed its dimensions. Index all documents again.');
  return kinds[0]?.dimensions;
}

function loadVectors(database: Database, projectId: string, dimensions: number) {
  const from = 'FROM pieces WHERE document_id IN (SELECT id FROM documents WHERE project_id = ?)';
  const count = database.get(`SELECT count(*) AS count ${from}`, projectId)?.count;
  const values = new Float32Array(Number(count) * dimensions);
  const bytes = new Uint8Array(values.buffer);
  const ids: number[] = [];
  for (const row of database.prepare(`SELECT id, vector ${from}`).iterate(projectId)) {
    const { id, vector } = row as { id: number; vector: Uint8Array };
    bytes.set(vector, ids.length * dimensions * Float32Array.BYTES_PER_ELEMENT);
    ids.push(id);
  }
  return { ids, values };
}
