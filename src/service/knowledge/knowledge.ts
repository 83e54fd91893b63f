import type { DatabaseSync } from 'node:sqlite';
import type { Upload } from './document-text.ts';
import { type Document, listDocuments, putDocument, removeDocument } from './documents.ts';
import { type Index, indexer } from './index-document.ts';
import { type ProjectSearch, searcher } from './search.ts';

/** What the bots of projects know: documents, which are indexed and then searched. All of it throws KnowledgeError. */
export interface Knowledge {
  /** The documents of a project, by name. */
  documents(projectId: string): Document[];
  /** Keeps a document, in place of one of the same name, and returns its id. It is to be indexed then. */
  put(projectId: string, upload: Upload): string;
  /** Removes a document with its pieces. */
  remove(documentId: string): void;
  /** Makes the pieces of a document, which are searched from then on. */
  readonly index: Index;
  readonly search: ProjectSearch;
}

/** The knowledge in a database. */
export function knowledge(database: DatabaseSync): Knowledge {
  return {
    documents: (projectId) => listDocuments(database, projectId),
    put: (projectId, upload) => putDocument(database, projectId, upload),
    remove: (documentId) => removeDocument(database, documentId),
    index: indexer(database),
    search: searcher(database),
  };
}
