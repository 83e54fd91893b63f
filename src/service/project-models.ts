import type { RunError } from './brains/steps.ts';
import type { EmbeddingModel } from './knowledge/embed-texts.ts';
import { KnowledgeError } from './knowledge/knowledge-error.ts';
import { embedder } from './models/embedder.ts';
import { providerError } from './models/provider-error.ts';
import type { Settings } from './settings/settings.ts';

/** How long one call of an embedding model may take, in ms: while it waits, no other document is indexed. */
const LIMIT_MS = 120_000;

/** The embedding model of a project, if it has one. It is loaded when it is asked. */
export function embeddingModelOf(
  settings: Pick<Settings, 'model'>,
  projectId: string,
  limitMs = LIMIT_MS,
): EmbeddingModel | undefined {
  const found = settings.model(projectId, 'embedding');
  return (
    found && {
      // The same name can be another model at another kind of provider.
      model: `${found.kind}/${found.deployment ?? found.model}`,
      async embed(texts, purpose, signal) {
        const embed = await embedder(found);
        return embed(texts, purpose, AbortSignal.any([signal, AbortSignal.timeout(limitMs)]));
      },
      explain: (error) => providerError(error).message,
    }
  );
}

/** What a run is told of an error of a model, or of the knowledge. */
export function modelRunError(error: unknown): RunError {
  if (error instanceof KnowledgeError) return { code: 'KNOWLEDGE_FAILED', message: error.message };
  return providerError(error);
}
