import type { DatabaseSync } from 'node:sqlite';
import { transaction } from '../settings/database.ts';
import { isMarkdown } from './document-text.ts';
import { noteChange, type Revision, readRevision, sourceOf } from './documents.ts';
import { type EmbeddingModel, embedTexts } from './embed-texts.ts';
import { KnowledgeError } from './knowledge-error.ts';
import { type Piece, split } from './split.ts';

export interface IndexOptions {
  readonly signal: AbortSignal;
  /** Is told how many of the document's pieces are embedded. */
  readonly onProgress?: (done: number, total: number) => void;
}

/** Makes the pieces of a document. */
export type Index = (documentId: string, model: EmbeddingModel, options: IndexOptions) => Promise<void>;

/** How many pieces a project can have: the search of more would hold up all streams for too long. */
const MAX_PIECES = 10_000;
/** How many pieces are embedded by one call: few, since providers also bound the tokens of a call. */
const BATCH = 16;

/**
 * Indexes documents: all pieces are embedded first, then written at once. If that fails or is stopped, the pieces that
 * the document has stay, and the problem is kept with it.
 */
export function indexer(database: DatabaseSync): Index {
  const underWay = new Set<string>();
  return async (documentId, model, options) => {
    const document = readRevision(database, documentId);
    if (underWay.has(documentId)) throw new KnowledgeError(`${document.name} is being indexed already.`);
    underWay.add(documentId);
    try {
      const pieces = piecesOf(document);
      checkRoom(database, document, pieces.length);
      const texts = pieces.map(
        ({ heading, text }) => `${sourceOf(document.name, heading)}\n\n${text.trim()}`,
      );
      const vectors = await embedAll(texts, model, options);
      write(database, document, { pieces, vectors, model: model.model });
    } catch (error) {
      const text = 'UPDATE documents SET problem = ? WHERE id = ?';
      database.prepare(text).run(problemOf(error, options.signal), documentId);
      throw error;
    } finally {
      underWay.delete(documentId);
    }
  };
}

/** The pieces of a document that have more than white space. */
function piecesOf({ name, text }: Revision): Piece[] {
  return split(text, { isMarkdown: isMarkdown(name) }).filter((piece) => /\S/.test(piece.text));
}

function problemOf(error: unknown, signal: AbortSignal): string {
  if (error instanceof KnowledgeError) return error.message;
  return signal.aborted ? 'The indexing was stopped.' : 'The document could not be indexed.';
}

/** @throws KnowledgeError if the project cannot have so many pieces beside those of its other documents */
function checkRoom(database: DatabaseSync, { id, projectId }: Revision, adds: number): void {
  const text = `SELECT count(*) AS others FROM pieces
    WHERE document_id IN (SELECT id FROM documents WHERE project_id = ? AND id <> ?)`;
  const { others } = database.prepare(text).get(projectId, id) as { others: number };
  if (others + adds <= MAX_PIECES) return;
  const [most, here, there] = [MAX_PIECES, adds, others].map((count) => count.toLocaleString('en'));
  throw new KnowledgeError(
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
    const batch = texts.slice(vectors.length, vectors.length + BATCH);
    vectors.push(...(await embedTexts(model, { texts: batch, purpose: 'document' }, signal)));
  }
  onProgress?.(vectors.length, texts.length);
  if (vectors.some(({ length }) => length !== vectors[0]?.length))
    throw new KnowledgeError('The embedding model answered with vectors of different dimensions.');
  return vectors;
}

interface Embedded {
  readonly pieces: readonly Piece[];
  readonly vectors: readonly Float32Array[];
  readonly model: string;
}

/** Writes the pieces of a document in place of those that it has. @throws KnowledgeError if it is another by now */
function write(database: DatabaseSync, document: Revision, { pieces, vectors, model }: Embedded): void {
  const { id, name, projectId, revision } = document;
  transaction(database, () => {
    if (readRevision(database, id).revision !== revision)
      throw new KnowledgeError(`${name} was uploaded anew meanwhile. Index it again.`);
    checkRoom(database, document, pieces.length);
    database.prepare('DELETE FROM pieces WHERE document_id = ?').run(id);
    const insert = database.prepare(
      'INSERT INTO pieces (document_id, heading, vector, text) VALUES (?, ?, ?, ?)',
    );
    for (const [n, { heading, text }] of pieces.entries()) {
      const { buffer, byteOffset, byteLength } = vectors[n] as Float32Array;
      insert.run(id, heading, new Uint8Array(buffer, byteOffset, byteLength), text);
    }
    const update = `UPDATE documents SET indexed_revision = revision, indexed_at = ?, model = ?, dimensions = ?,
      problem = NULL WHERE id = ?`;
    database.prepare(update).run(Date.now(), model, vectors[0]?.length ?? 0, id);
    noteChange(database, projectId);
  });
}
