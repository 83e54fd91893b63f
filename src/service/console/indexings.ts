import type { EmbeddingModel } from '../knowledge/embedding-model.ts';
import type { Knowledge } from '../knowledge/knowledge.ts';
import { SettingsError } from '../settings/settings-error.ts';

/** How far the indexing of a document is, in pieces. */
export interface Progress {
  readonly done: number;
  /** 0 while it waits for those before it. */
  readonly total: number;
}

interface Job {
  progress: Progress;
  readonly controller: AbortController;
}

export type Indexings = ReturnType<typeof indexings>;

/**
 * The indexings that were begun at the console, one after the other. What goes wrong is kept with the document;
 * `onFault` is called for faults of the service.
 */
export function indexings(index: Knowledge['index'], onFault: (error: unknown) => void) {
  const jobs = new Map<string, Job>();
  let last: Promise<void> = Promise.resolve();

  async function run(documentId: string, model: EmbeddingModel, job: Job): Promise<void> {
    const { signal } = job.controller;
    const onProgress = (done: number, total: number) => {
      job.progress = { done, total };
    };
    try {
      if (!signal.aborted) await index(documentId, model, { signal, onProgress });
    } catch (error) {
      if (!(error instanceof SettingsError) && !signal.aborted) onFault(error);
    } finally {
      if (jobs.get(documentId) === job) jobs.delete(documentId);
    }
  }
  /** Stops that of a document, if there is one. */
  const stop = (documentId: string) => {
    jobs.get(documentId)?.controller.abort();
    jobs.delete(documentId);
  };
  return {
    /** How far that of a document is; undefined if there is none. */
    progressOf: (documentId: string) => jobs.get(documentId)?.progress,
    /** Begins one, after those that wait. A document that waits already waits no second time. */
    begin(documentId: string, model: EmbeddingModel): void {
      if (jobs.get(documentId)?.progress.total === 0) return;
      stop(documentId);
      const job = { progress: { done: 0, total: 0 }, controller: new AbortController() };
      jobs.set(documentId, job);
      last = last.then(() => run(documentId, model, job));
    },
    stop,
    /** Stops all. */
    close: () => [...jobs.keys()].forEach(stop),
  };
}
