import type { Database } from '../settings/database.ts';
import type { Upload } from './document-text.ts';
import { listDocuments, putDocument, removeDocument } from './documents.ts';
import { indexer } from './index-document.ts';
import { searcher } from './search.ts';

export type Knowledge = ReturnType<typeof knowledge>;

/** What the bots of projects know: documents, which are indexed and then searched. What cannot be is a SettingsError. */
export const knowledge = (database: Database) => ({
  /** The documents of a project, by name. */
  documents: (projectId: string) => listDocuments(database, projectId),
  /** Keeps a document, in place of one of the same name, and returns its id. It is to be indexed then. */
  put: (projectId: string, upload: Upload) => putDocument(database, projectId, upload),
  /** Removes a document with its pieces. */
  remove: (documentId: string) => removeDocument(database, documentId),
  /** Makes the pieces of a document, which are searched from then on. */
  index: indexer(database),
  search: searcher(database),
});
