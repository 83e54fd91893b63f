import type { ModelRole, ModelSettings } from '../settings/model-settings.ts';
import { embedder } from './embedder.ts';
import { languageModel } from './language-model.ts';
import { packages } from './packages.ts';
import { ModelError, modelError } from './provider-error.ts';
import { safeFetch } from './safe-fetch.ts';

/** The result of a connection test: what it took, or what is wrong and what to do. It has no key in it. */
export type ConnectionReport =
  | { readonly ok: true; readonly model: string; readonly ms: number; readonly tokens?: number }
  | { readonly ok: false; readonly code: string; readonly problem: string; readonly todo: string };

/** How long the test waits, in ms. */
const LIMIT_MS = 15_000;

/** Asks a model for one small answer or embedding. It never throws; if `signal` aborts, that is what is wrong. */
export async function testConnection(
  role: ModelRole,
  settings: ModelSettings,
  signal?: AbortSignal,
): Promise<ConnectionReport> {
  const started = performance.now();
  const stopped = new AbortController();
  const limit = AbortSignal.any([AbortSignal.timeout(LIMIT_MS), stopped.signal, ...(signal ? [signal] : [])]);
  try {
    const tokens = await (role === 'completion' ? answer(settings, limit) : embed(settings, limit));
    const ms = Math.round(performance.now() - started);
    const model = settings.deployment ?? settings.model;
    return { ok: true, model, ms, ...(tokens !== undefined && { tokens }) };
  } catch (error) {
    const { code, message, todo } = modelError(error);
    return { ok: false, code, problem: message, todo };
  } finally {
    stopped.abort();
  }
}

/** The tokens of one small answer, streamed as for a bot. */
async function answer(settings: ModelSettings, abortSignal: AbortSignal): Promise<number | undefined> {
  const model = await languageModel(settings);
  const { streamText } = await packages.ai();
  const { stream } = streamText({
    model,
    prompt: 'Answer with the word OK.',
    maxRetries: 0,
    abortSignal,
    // Without it, the provider's answer is printed.
    onError: () => {},
  });
  for await (const part of stream) {
    if (part.type === 'error') throw part.error;
    if (part.type !== 'finish') continue;
    if (part.finishReason === 'content-filter') throw new ModelError('MODEL_CONTENT_REFUSED');
    if (!/^(stop|length|tool-calls)$/.test(part.finishReason)) break;
    return part.totalUsage.totalTokens;
  }
  abortSignal.throwIfAborted();
  throw new ModelError('MODEL_BAD_ANSWER');
}

/** The tokens of one small embedding. */
async function embed(settings: ModelSettings, signal: AbortSignal): Promise<number | undefined> {
  const embedOnce = await embedder(settings, safeFetch, 0);
  return (await embedOnce(['OK'], 'query', signal)).tokens;
}
