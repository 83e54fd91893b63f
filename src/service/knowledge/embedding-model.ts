import { SettingsError } from '../settings/settings-error.ts';

/** What is embedded: a question, or what is searched. Some models tell them apart. */
export type Purpose = 'query' | 'document';

/** An embedding model as knowledge needs it. */
export interface EmbeddingModel {
  /** Names the model: vectors of another name are not comparable. */
  readonly model: string;
  /** A vector for each text, all of one length. @throws SettingsError with no provider's text; the signal's reason */
  embed(texts: readonly string[], purpose: Purpose, signal: AbortSignal): Promise<readonly Float32Array[]>;
}

/** More would make one search hold up all streams for too long. */
const MAX_DIMENSIONS = 4096;

/** The vectors with a length of 1. @throws SettingsError if a vector has none, or too many dimensions */
export function unitVectors(vectors: readonly Float32Array[]): Float32Array[] {
  const dimensions = vectors[0]?.length ?? 0;
  if (dimensions > MAX_DIMENSIONS)
    throw new SettingsError(
      `The embedding model's vectors have ${dimensions} dimensions; at most ${MAX_DIMENSIONS} are possible.`,
    );
  return vectors.map((vector) => {
    const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
    if (!Number.isFinite(length) || length === 0)
      throw new SettingsError('The embedding model answered with a vector that is not one.');
    return vector.map((value) => value / length);
  });
}
