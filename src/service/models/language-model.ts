import type { EmbeddingModel, LanguageModel } from 'ai';
import type { ModelKind, ModelSettings } from '../settings/model-settings.ts';
import { packages } from './packages.ts';
import { ModelError } from './provider-error.ts';
import { type Fetch, safeFetch } from './safe-fetch.ts';

/** A model of `ai` that answers; never the name of one, which `ai` would send to its gateway. */
export type CompletionModel = Exclude<LanguageModel, string>;

/** What a provider is asked with. `apiKey` is empty where there is none: a missing one is read from the environment. */
export interface Connection {
  readonly apiKey: string;
  readonly baseURL: string;
  readonly fetch: Fetch;
}

/** The endpoints of the kinds that have one of their own. */
const ENDPOINTS: Readonly<Partial<Record<ModelKind, string>>> = {
  openai: 'https://api.openai.com/v1',
  anthropic: 'https://api.anthropic.com/v1',
  mistral: 'https://api.mistral.ai/v1',
  google: 'https://generativelanguage.googleapis.com/v1beta',
  voyage: 'https://api.voyageai.com/v1',
};

/** How a model is reached. Throws `ModelError` if its endpoint is missing. */
export function connectionTo({ kind, key, endpoint }: ModelSettings, fetch: Fetch): Connection {
  const baseURL = endpoint ?? ENDPOINTS[kind];
  if (baseURL === undefined) throw new ModelError('MODEL_ENDPOINT_MISSING');
  return { apiKey: key ? key.open() : '', baseURL, fetch };
}

/**
 * A model that answers. OpenAI's /responses would keep the conversation, and is told not to.
 * Throws `ModelError` if something is not set, or a package is missing.
 */
export async function languageModel(settings: ModelSettings, fetch = safeFetch): Promise<CompletionModel> {
  if (settings.kind === 'voyage') throw new ModelError('MODEL_CANNOT_ANSWER');
  const { completion } = await provider(settings, settings.kind, fetch);
  const { wrapLanguageModel, defaultSettingsMiddleware } = await packages.ai();
  if (settings.kind !== 'openai') return completion();
  const notStored = defaultSettingsMiddleware({
    settings: { providerOptions: { openai: { store: false } } },
  });
  return wrapLanguageModel({ model: completion(), middleware: notStored });
}

/** A model of `ai` that embeds. Throws as `languageModel` does. */
export async function embeddingModel(settings: ModelSettings, fetch = safeFetch): Promise<EmbeddingModel> {
  const { kind } = settings;
  if (kind === 'anthropic' || kind === 'voyage') throw new ModelError('MODEL_CANNOT_EMBED');
  const { embedding } = await provider(settings, kind, fetch);
  await packages.ai();
  return embedding();
}

interface Provider {
  readonly completion: () => CompletionModel;
  readonly embedding: () => EmbeddingModel;
}

/** The two models that a provider of the AI SDK makes. `openai` has /responses; what others have is the older chat. */
async function provider(
  settings: ModelSettings,
  kind: Exclude<ModelKind, 'voyage'>,
  fetch: Fetch,
): Promise<Provider> {
  const connection = connectionTo(settings, fetch);
  const { model } = settings;
  switch (kind) {
    case 'openai': {
      const { createOpenAI } = await packages.openai();
      const openai = createOpenAI(connection);
      return { completion: () => openai.responses(model), embedding: () => openai.embeddingModel(model) };
    }
    case 'azure': {
      const { createAzure } = await packages.azure();
      const azure = createAzure({ ...connection, ...azureAddress(connection.baseURL, settings.apiVersion) });
      const name = settings.deployment ?? model;
      return { completion: () => azure.chat(name), embedding: () => azure.embeddingModel(name) };
    }
    case 'anthropic': {
      const { createAnthropic } = await packages.anthropic();
      const anthropic = createAnthropic(connection);
      return { completion: () => anthropic(model), embedding: () => anthropic.embeddingModel(model) };
    }
    case 'mistral': {
      const { createMistral } = await packages.mistral();
      const mistral = createMistral(connection);
      return { completion: () => mistral(model), embedding: () => mistral.embeddingModel(model) };
    }
    case 'google': {
      const { createGoogle } = await packages.google();
      const google = createGoogle(connection);
      return { completion: () => google(model), embedding: () => google.embeddingModel(model) };
    }
    case 'openai-compatible': {
      const { createOpenAICompatible } = await packages['openai-compatible']();
      const server = createOpenAICompatible({ ...connection, name: 'compatible', includeUsage: true });
      return { completion: () => server(model), embedding: () => server.embeddingModel(model) };
    }
  }
}

/** Where Azure's own servers are, as `@ai-sdk/azure` knows them. */
const AZURE_HOST = /\.(openai|services\.ai|cognitiveservices)\.azure\.com$/;

/** A dated API version, whose paths name the deployment. */
const DATED = /^\d{4}-\d{2}-\d{2}/;

/**
 * The options of `createAzure` for an endpoint. The portal shows `https://NAME.openai.azure.com`, the address of a
 * project, or a whole "target URI"; of any of them, the path is `/openai`, and below it `/v1`, or
 * `/deployments/NAME` for a dated version. On other hosts, such as a gateway, the endpoint stays as it is.
 */
export function azureAddress(endpoint: string, apiVersion?: string) {
  const { origin, hostname, pathname } = new URL(endpoint);
  const path = pathname.replace(/\/+$/, '');
  const version = apiVersion === undefined ? '/v1' : '';
  const onAzure = `${path.replace(/\/openai(\/.*)?$/, '')}/openai${version}`;
  return {
    baseURL: origin + (AZURE_HOST.test(hostname) ? onAzure : path),
    ...(apiVersion !== undefined && { apiVersion }),
    useDeploymentBasedUrls: DATED.test(apiVersion ?? ''),
  };
}
