import type { Connection } from './language-model.ts';
import { ModelError, problemOfAnswer } from './provider-error.ts';

/** Some providers embed what is searched for in another way than what is searched. */
export type Purpose = 'query' | 'document';

/** What texts became, in their order, and what they cost if the provider says it. */
export interface EmbeddedBatch {
  readonly embeddings: readonly (readonly number[])[];
  readonly tokens?: number | undefined;
}

/** What Voyage answers (docs.voyageai.com, "Text embeddings API"). */
interface VoyageAnswer {
  readonly data: readonly { readonly index: number; readonly embedding: readonly number[] }[];
  readonly usage?: { readonly total_tokens?: number };
}

/** The texts of one request. */
export interface VoyageRequest {
  readonly model: string;
  readonly texts: readonly string[];
  readonly purpose: Purpose;
  readonly signal: AbortSignal;
}

/** Embeds texts by Voyage's HTTP API. Throws `ModelError`, or the reason of `signal`. */
export async function embedByVoyage(
  { apiKey, baseURL, fetch }: Connection,
  { model, texts, purpose, signal }: VoyageRequest,
): Promise<EmbeddedBatch> {
  const answer = await fetch(`${baseURL.replace(/\/$/, '')}/embeddings`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({ model, input: texts, input_type: purpose }),
    signal,
  });
  const text = await answer.text();
  if (!answer.ok) throw new ModelError(problemOfAnswer(answer.status, text) ?? 'MODEL_FAILED');
  const found = parse(text);
  if (!Array.isArray(found?.data)) throw new ModelError('MODEL_BAD_ANSWER');
  const inOrder = found.data.toSorted((one, other) => one.index - other.index);
  return { embeddings: inOrder.map(({ embedding }) => embedding), tokens: found.usage?.total_tokens };
}

function parse(text: string): VoyageAnswer | undefined {
  try {
    return JSON.parse(text) as VoyageAnswer;
  } catch {
    return undefined;
  }
}
