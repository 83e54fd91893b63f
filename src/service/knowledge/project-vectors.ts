import { setImmediate as nextTick } from 'node:timers/promises';
import type { Database } from '../settings/database.ts';
import { SettingsError } from '../settings/settings-error.ts';

/** The vectors of a project's pieces, one after the other, each of length 1. */
export interface Vectors {
  readonly dimensions: number;
  /** The ids of the pieces, in the order of their vectors. */
  readonly ids: readonly number[];
  readonly values: Float32Array;
}

/**
 * The vectors of a project, which must be of this model, as its pieces are now; undefined if it has none.
 * @throws SettingsError
 */
export type VectorsOf = (projectId: string, model: string) => Promise<Vectors | undefined>;

interface Loaded {
  /** Which change of the project's knowledge they are of. */
  readonly change: number;
  readonly vectors: Promise<Vectors>;
  /** Forgets them. */
  readonly timer: NodeJS.Timeout;
}

/** How long vectors stay in memory without a search, in ms. */
const UNUSED_MS = 600_000;

/**
 * The vectors of projects: loaded at the first search, and again after a change, also one by another process. In memory,
 * they have 4 bytes for each dimension of each piece.
 */
export function projectVectors(database: Database): VectorsOf {
  const loaded = new Map<string, Loaded>();
  const forget = (projectId: string) => {
    clearTimeout(loaded.get(projectId)?.timer);
    loaded.delete(projectId);
  };
  const begin = (projectId: string, change: number, dimensions: number): Loaded => {
    forget(projectId);
    const loading = loadVectors(database, projectId, dimensions);
    const timer = setTimeout(forget, UNUSED_MS, projectId).unref();
    const one = { change, timer, vectors: loading.then((found) => ({ dimensions, ...found })) };
    loaded.set(projectId, one);
    one.vectors.catch(() => forget(projectId));
    return one;
  };
  return async (projectId, model) => {
    while (true) {
      // What is checked and what is loaded must be of one moment.
      const [change, dimensions] = database.transaction(() => [
        changeOf(database, projectId),
        checkedDimensions(database, projectId, model),
      ]);
      if (change === undefined || dimensions === undefined) return undefined;
      const known = loaded.get(projectId);
      const { vectors, timer } = known?.change === change ? known : begin(projectId, change, dimensions);
      timer.refresh();
      const found = await vectors;
      if (changeOf(database, projectId) === change) return found;
    }
  };
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

/** How many vectors are loaded at once: while they are, all streams wait. */
const SLICE = 500;

/** The vectors as they are now. They are of no use if something changes meanwhile. */
async function loadVectors(database: Database, projectId: string, dimensions: number) {
  const mine = 'SELECT id FROM pieces WHERE document_id IN (SELECT id FROM documents WHERE project_id = ?)';
  const ids = database.all<{ id: number }>(mine, projectId).map(({ id }) => id);
  const values = new Float32Array(ids.length * dimensions);
  const size = dimensions * Float32Array.BYTES_PER_ELEMENT;
  const bytes = new Uint8Array(values.buffer);
  const select = database.prepare('SELECT vector FROM pieces WHERE id = ?');
  for (const [place, id] of ids.entries()) {
    const row = select.get(id) as { vector: Uint8Array } | undefined;
    if (row) bytes.set(row.vector.subarray(0, size), place * size);
    if (place % SLICE === SLICE - 1) await nextTick();
  }
  return { ids, values };
}
