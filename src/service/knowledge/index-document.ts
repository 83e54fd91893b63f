import type { Database } from '../settings/database.ts';
import { SettingsError } from '../settings/settings-error.ts';
import { isMarkdown } from './document-text.ts';
import { noteChange, type Revision, readRevision, sourceOf } from './documents.ts';
import { type EmbeddingModel, unitVectors } from './embedding-model.ts';
import { type Piece, split } from './split.ts';

export interface IndexOptions {
  readonly signal: AbortSignal;
  /** Is told how many of the document's pieces are embedded. */
  readonly onProgress?: (done: number, total: number) => void;
}

/** How many pieces a project can have: the search of more would hold up all streams for too long. */
const MAX_PIECES = 10_000;
/** How many pieces are embedded by one call: few, since providers also bound the tokens of a call. */
const BATCH = 16;

/**
 * Indexes documents: all pieces are embedded first, then written at once. If that fails or is stopped, the pieces that
 * the document has stay, and the problem is kept with it.
 */
export function indexer(database: Database) {
  return async (documentId: string, model: EmbeddingModel, options: IndexOptions): Promise<void> => {
    const document = readRevision(database, documentId);
    try {
      const pieces = piecesOf(document);
      checkRoom(database, document, pieces.length);
      const texts = pieces.map(
        ({ heading, text }) => `${sourceOf(document.name, heading)}\n\n${text.trim()}`,
      );
      const vectors = await embedAll(texts, model, options);
      write(database, document, { pieces, vectors, model: model.model });
    } catch (error) {
      const problem = problemOf(error, options.signal);
      database.run('UPDATE documents SET problem = ? WHERE id = ?', problem, documentId);
      throw error;
    }
  };
}

/** The pieces of a document that have more than white space. */
function piecesOf({ name, text }: Revision): Piece[] {
  return split(text, { isMarkdown: isMarkdown(name) }).filter((piece) => /\S/.test(piece.text));
}

function problemOf(error: unknown, signal: AbortSignal): string {
  if (error instanceof SettingsError) return error.message;
  return signal.aborted ? 'The indexing was stopped.' : 'The document could not be indexed.';
}

/** @throws SettingsError if the project cannot have so many pieces beside those of its other documents */
function checkRoom(database: Database, { id, projectId }: Revision, adds: number): void {
  const text = `SELECT count(*) AS others FROM pieces
    WHERE document_id IN (SELECT id FROM documents WHERE project_id = ? AND id <> ?)`;
  const others = Number(database.get(text, projectId, id)?.others);
  if (others + adds <= MAX_PIECES) return;
  const [most, here, there] = [MAX_PIECES, adds, others].map((count) => count.toLocaleString('en'));
  throw new SettingsError(
    `A project can have at most ${most} pieces. This document has ${here}, and the others have ${there}.`,
  );
}

/** Embeds texts batch by batch. */
async function embedAll(
  texts: readonly string[],
  model: EmbeddingModel,
  { signal, onProgress }: IndexOptions,
): Promise<Float32Array[]> {
  const vectors: Float32Array[] = [];
  while (vectors.length < texts.length) {
    onProgress?.(vectors.length, texts.length);
    signal.throwIfAborted();
    const batch = texts.slice(vectors.length, vectors.length + BATCH);
    vectors.push(...unitVectors(await model.embed(batch, 'document', signal)));
  }
  onProgress?.(vectors.length, texts.length);
  if (vectors.some(({ length }) => length !== vectors[0]?.length))
    throw new SettingsError('The embedding model answered with vectors of different dimensions.');
  return vectors;
}

interface Embedded {
  readonly pieces: readonly Piece[];
  readonly vectors: readonly Float32Array[];
  readonly model: string;
}

/** Writes the pieces of a document in place of those that it has. @throws SettingsError if it is another by now */
function write(database: Database, document: Revision, { pieces, vectors, model }: Embedded): void {
  const { id, name, projectId, revision } = document;
  database.transaction(() => {
    if (readRevision(database, id).revision !== revision)
      throw new SettingsError(`${name} was uploaded anew meanwhile. Index it again.`);
    checkRoom(database, document, pieces.length);
    database.run('DELETE FROM pieces WHERE document_id = ?', id);
    const insert = database.prepare(
      'INSERT INTO pieces (document_id, heading, vector, text) VALUES (?, ?, ?, ?)',
    );
    for (const [n, { heading, text }] of pieces.entries()) {
      const { buffer, byteOffset, byteLength } = vectors[n] as Float32Array;
      insert.run(id, heading, new Uint8Array(buffer, byteOffset, byteLength), text);
    }
    const update = `UPDATE documents SET indexed_revision = revision, indexed_at = ?, model = ?, dimensions = ?,
      problem = NULL WHERE id = ?`;
    database.run(update, Date.now(), model, vectors[0]?.length ?? 0, id);
    noteChange(database, projectId);
  });
}
