import type { ModelSettings } from '../settings/model-settings.ts';
import { connectionTo, embeddingModel } from './language-model.ts';
import { packages } from './packages.ts';
import { ModelError, modelError } from './provider-error.ts';
import { type Fetch, safeFetch } from './safe-fetch.ts';
import { type EmbeddedBatch, embedByVoyage, type Purpose } from './voyage.ts';

/** Embeds texts in their order, in one request. Throws `ModelError`, or the reason of `signal`. */
export type Embed = (
  texts: readonly string[],
  purpose: Purpose,
  signal: AbortSignal,
) => Promise<EmbeddedBatch>;

/**
 * How a model embeds. Throws `ModelError` if something is not set, a package is missing, or it cannot embed.
 * `maxRetries` is how often the AI SDK asks again.
 */
export async function embedder(settings: ModelSettings, fetch = safeFetch, maxRetries = 2): Promise<Embed> {
  const request =
    settings.kind === 'voyage'
      ? voyageRequest(settings, fetch)
      : await sdkRequest(settings, fetch, maxRetries);
  return async (texts, purpose, signal) => {
    try {
      const batch = await request(texts, purpose, signal);
      if (!isWhole(batch.embeddings, texts.length)) throw new ModelError('MODEL_BAD_ANSWER');
      return batch;
    } catch (error) {
      signal.throwIfAborted();
      throw modelError(error);
    }
  };
}

function voyageRequest(settings: ModelSettings, fetch: Fetch): Embed {
  const connection = connectionTo(settings, fetch);
  return (texts, purpose, signal) =>
    embedByVoyage(connection, { model: settings.model, texts, purpose, signal });
}

async function sdkRequest(settings: ModelSettings, fetch: Fetch, maxRetries: number): Promise<Embed> {
  const model = await embeddingModel(settings, fetch);
  const { embedMany } = await packages.ai();
  return async (texts, purpose, abortSignal) => {
    const taskType = purpose === 'query' ? 'RETRIEVAL_QUERY' : 'RETRIEVAL_DOCUMENT';
    const { embeddings, usage } = await embedMany({
      model,
      values: [...texts],
      maxRetries,
      abortSignal,
      providerOptions: { google: { taskType } },
    });
    return { embeddings, tokens: usage.tokens };
  };
}

/** Whether there is a vector for each text, all of one length and of numbers alone. */
function isWhole(embeddings: EmbeddedBatch['embeddings'], count: number): boolean {
  const length = embeddings[0]?.length ?? 0;
  return (
    embeddings.length === count &&
    embeddings.every((one) => length > 0 && one?.length === length && one.every(Number.isFinite))
  );
}
