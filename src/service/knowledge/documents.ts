import { randomUUID } from 'node:crypto';
import type { Database } from '../settings/database.ts';
import { SettingsError } from '../settings/settings-error.ts';
import { documentName, documentText, type Upload } from './document-text.ts';

type DocumentRow = {
  id: string;
  name: string;
  /** How large its text is, in bytes of UTF-8. */
  size: number;
  /** How many pieces of it are searched. */
  pieces: number;
  /** When these pieces were made, in ms of Unix time, and by which embedding model. */
  indexedAt: number | null;
  model: string | null;
  /** Whether these pieces are of its text: not until it is indexed, and not when it was uploaded anew. */
  isCurrent: number;
  /** Why it could not be indexed the last time. */
  problem: string | null;
};

/** A document of a project, as a list shows it. */
export type Document = ReturnType<typeof listDocuments>[number];

/** What is indexed: a document's text, and the number of its upload. */
export type Revision = { id: string; projectId: string; name: string; revision: number; text: string };

const MAX_DOCUMENTS = 1000;
const NO_DOCUMENT = 'The document is not there any more.';

/** The documents of a project, by name. */
export function listDocuments(database: Database, projectId: string) {
  const text = `SELECT id, name, octet_length(text) AS size, indexed_at AS indexedAt, model, problem,
    indexed_revision IS revision AS isCurrent,
    (SELECT count(*) FROM pieces WHERE document_id = documents.id) AS pieces
    FROM documents WHERE project_id = ? ORDER BY name`;
  return database
    .all<DocumentRow>(text, projectId)
    .map((row) => ({ ...row, isCurrent: row.isCurrent === 1 }));
}

/**
 * Keeps a document's text, in place of what the project has by this name; its pieces stay until it is indexed.
 * Returns its id. @throws SettingsError
 */
export function putDocument(database: Database, projectId: string, upload: Upload): string {
  const name = documentName(upload.name);
  const text = documentText(upload);
  return database.transaction(() => {
    const others = 'SELECT count(*) AS count FROM documents WHERE project_id = ? AND name <> ?';
    if (Number(database.get(others, projectId, name)?.count) >= MAX_DOCUMENTS)
      throw new SettingsError(`A project can have at most ${MAX_DOCUMENTS.toLocaleString('en')} documents.`);
    if (!database.get('SELECT 1 FROM projects WHERE id = ?', projectId))
      throw new SettingsError('The project is not there any more.');
    const put = `INSERT INTO documents (id, project_id, name, revision, text) VALUES (?, ?, ?, 1, ?)
      ON CONFLICT (project_id, name)
      DO UPDATE SET revision = revision + 1, text = excluded.text, problem = NULL RETURNING id`;
    return String(database.get(put, randomUUID(), projectId, name, text)?.id);
  });
}

/** Removes a document with its pieces. @throws SettingsError if it is not there */
export function removeDocument(database: Database, documentId: string): void {
  database.transaction(() => {
    const text = 'DELETE FROM documents WHERE id = ? RETURNING project_id';
    const row = database.get<{ project_id: string }>(text, documentId);
    if (!row) throw new SettingsError(NO_DOCUMENT);
    noteChange(database, row.project_id);
  });
}

/** The text of a document as it is now. @throws SettingsError if it is not there */
export function readRevision(database: Database, documentId: string): Revision {
  const text = 'SELECT id, project_id AS projectId, name, revision, text FROM documents WHERE id = ?';
  const row = database.get<Revision>(text, documentId);
  if (!row) throw new SettingsError(NO_DOCUMENT);
  return row;
}

/** What names a piece of a document: the document's name and the headings above the piece. */
export function sourceOf(name: string, heading: string): string {
  return heading === '' ? name : `${name} › ${heading}`;
}

/** Notes that the pieces of a project are others, for all processes that have them in memory. */
export function noteChange(database: Database, projectId: string): void {
  // The row gets a number that no other change ever had.
  database.run('REPLACE INTO knowledge_changes (project_id) VALUES (?)', projectId);
}
