import type { RunError } from './brains/steps.ts';
import type { EmbeddingModel } from './knowledge/embed-texts.ts';
import { KnowledgeError } from './knowledge/knowledge-error.ts';
import { embedder } from './models/embedder.ts';
import { providerError } from './models/provider-error.ts';
import type { Settings } from './settings/settings.ts';

/** The embedding model of a project, if it has one. It is loaded when it is asked. */
export function embeddingModelOf(settings: Settings, projectId: string): EmbeddingModel | undefined {
  const found = settings.model(projectId, 'embedding');
  return (
    found && {
      // The same name can be another model at another kind of provider.
      model: `${found.kind}/${found.deployment ?? found.model}`,
      embed: async (...texts) => (await embedder(found))(...texts),
      explain: (error) => providerError(error).message,
    }
  );
}

/** What a run is told of an error of a model, or of the knowledge. */
export function modelRunError(error: unknown): RunError {
  if (error instanceof KnowledgeError) return { code: 'KNOWLEDGE_FAILED', message: error.message };
  return providerError(error);
}
