import type { ModelSettings } from '../settings/model-settings.ts';
import { connectionTo, embeddingModel } from './language-model.ts';
import { packages } from './packages.ts';
import { ModelError, modelError } from './provider-error.ts';
import { type Fetch, safeFetch } from './safe-fetch.ts';
import { type EmbeddedBatch, embedByVoyage, type Purpose } from './voyage.ts';

/** Embeds texts in their order. Throws `ModelError`, or the reason of `signal`. */
export type Embed = (
  texts: readonly string[],
  purpose: Purpose,
  signal: AbortSignal,
) => Promise<Float32Array[]>;

/** How many texts go in one request, which every provider takes. */
const BATCH = 64;

/** How a model embeds. Throws `ModelError` if something is not set, a package is missing, or it cannot embed. */
export async function embedder(settings: ModelSettings, fetch = safeFetch): Promise<Embed> {
  const embedBatch = await batchEmbedder(settings, fetch);
  return async (texts, purpose, signal) => {
    const vectors: Float32Array[] = [];
    for (let from = 0; from < texts.length; from += BATCH) {
      const { embeddings } = await embedBatch(texts.slice(from, from + BATCH), purpose, signal);
      vectors.push(...embeddings.map((embedding) => Float32Array.from(embedding)));
    }
    return vectors;
  };
}

/** Embeds the texts of one batch, as `embedder` does. `maxRetries` is how often the AI SDK asks again. */
export async function batchEmbedder(settings: ModelSettings, fetch = safeFetch, maxRetries = 2) {
  const request = await requestOf(settings, fetch, maxRetries);
  return async (texts: readonly string[], purpose: Purpose, signal: AbortSignal): Promise<EmbeddedBatch> => {
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

type Request = (texts: readonly string[], purpose: Purpose, signal: AbortSignal) => Promise<EmbeddedBatch>;

async function requestOf(settings: ModelSettings, fetch: Fetch, maxRetries: number): Promise<Request> {
  if (settings.kind === 'voyage') {
    const connection = connectionTo(settings, fetch);
    return (texts, purpose, signal) =>
      embedByVoyage(connection, { model: settings.model, texts, purpose, signal });
  }
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
