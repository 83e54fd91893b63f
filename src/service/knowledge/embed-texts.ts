import { KnowledgeError } from './knowledge-error.ts';

/** What is embedded: a question, or what is searched. Some models tell them apart. */
export type Purpose = 'query' | 'document';

/** An embedding model as knowledge needs it. */
export interface EmbeddingModel {
  /** Names the model: vectors of another name are not comparable. */
  readonly model: string;
  embed(texts: readonly string[], purpose: Purpose, signal: AbortSignal): Promise<readonly Float32Array[]>;
  /** What an error of `embed` means, as a plain sentence with no provider's text. */
  explain(error: unknown): string;
}

interface Texts {
  readonly texts: readonly string[];
  readonly purpose: Purpose;
}

/** More would make one search hold up all streams for too long. */
const MAX_DIMENSIONS = 4096;

/**
 * Embeds texts; returns a vector of length 1 for each.
 * @throws KnowledgeError if the model fails or its answer is not what was asked for; the signal's reason if it aborts
 */
export async function embedTexts(
  model: EmbeddingModel,
  { texts, purpose }: Texts,
  signal: AbortSignal,
): Promise<Float32Array[]> {
  signal.throwIfAborted();
  let vectors: readonly Float32Array[];
  try {
    vectors = await model.embed(texts, purpose, signal);
  } catch (error) {
    signal.throwIfAborted();
    throw new KnowledgeError(model.explain(error));
  }
  signal.throwIfAborted();
  if (vectors.length !== texts.length)
    throw new KnowledgeError(
      `The embedding model answered with ${vectors.length} vectors for ${texts.length} texts.`,
    );
  const [first] = vectors;
  if (first && first.length > MAX_DIMENSIONS)
    throw new KnowledgeError(
      `The embedding model's vectors have ${first.length} dimensions; at most ${MAX_DIMENSIONS} are possible.`,
    );
  return vectors.map((vector) => ofLengthOne(vector, first?.length));
}

function ofLengthOne(vector: Float32Array, dimensions: number | undefined): Float32Array {
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  if (vector.length !== dimensions || !Number.isFinite(length) || length === 0)
    throw new KnowledgeError('The embedding model answered with a vector that is not one.');
  return vector.map((value) => value / length);
}
