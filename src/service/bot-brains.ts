import type { Admission } from './admit-call.ts';
import { type Answering, modelBrain } from './brains/model.ts';
import { type Speed, scriptedBrain } from './brains/scripted.ts';
import type { Brain, RunError, Search } from './brains/steps.ts';
import type { EmbeddingModel } from './knowledge/embedding-model.ts';
import type { Knowledge } from './knowledge/knowledge.ts';
import { embedder } from './models/embedder.ts';
import { languageModel } from './models/language-model.ts';
import { ModelError, modelError } from './models/provider-error.ts';
import type { Bot } from './settings/bot.ts';
import { hintOf, type ModelSettings, USUAL_WINDOW } from './settings/model-settings.ts';
import { DEMO, type Settings } from './settings/settings.ts';
import { SettingsError } from './settings/settings-error.ts';

/** The bot of SERVICE_MODEL. It is in memory alone. */
const ASSISTANT: Bot = {
  ...{ namespace: DEMO, name: 'assistant', title: 'Assistant' },
  instructions: 'You are a helpful assistant. Answer in the language of the user.',
  suggestions: [
    ...['What can you help me with?', 'Explain server-sent events in three sentences'],
    ...['Write a short poem about the sea', 'What time is it?'],
  ],
  ...{ tools: ['clock'], usesKnowledge: false },
};

/** Its name, as `namespace/bot`. */
export const ASSISTANT_BOT = `${ASSISTANT.namespace}/${ASSISTANT.name}`;

/** What a user can say to it. */
export const ASSISTANT_SUGGESTIONS = ASSISTANT.suggestions;

/** The settings of a model that the environment names. */
export function assistantOf(model: Omit<ModelSettings, 'keyHint' | 'windowCharacters'>): ModelSettings {
  return { ...model, keyHint: hintOf(model.key), windowCharacters: USUAL_WINDOW };
}

export interface BotBrainsOptions {
  readonly settings: Settings;
  readonly knowledge: Knowledge;
  /** The model of `demo/assistant`, if there is such a bot. */
  readonly assistant?: ModelSettings | undefined;
  readonly speed?: Partial<Speed> | undefined;
  /** Called when a model, or the search in the knowledge, fails in an answer of `bot`. `code` says how. */
  readonly onModelError?: ((bot: string, code: string) => void) | undefined;
  /** Bots of every project, which need no settings, by `namespace/bot`. */
  readonly brains?: Readonly<Record<string, Brain>> | undefined;
}

/**
 * Finds what answers for a bot of a project: first the settings, then, for the project with the namespace `demo`, the
 * assistant and the scripts.
 */
export function botBrains(options: BotBrainsOptions): Admission['brainOf'] {
  const { settings, assistant, speed, onModelError, brains = {} } = options;
  const pace = { wordMs: 60, silenceMs: 40_000, ...speed };
  const brainOf = (bot: Bot, answering: () => Answering) =>
    modelBrain({
      ...{ bot, answering },
      runError(error) {
        const told = runErrorOf(error);
        onModelError?.(`${bot.namespace}/${bot.name}`, told.code);
        return told;
      },
    });
  return (projectId, namespace, name) => {
    const endpoint = `${namespace}/${name}`;
    if (Object.hasOwn(brains, endpoint)) return brains[endpoint];
    if (!settings.namespaces(projectId).includes(namespace)) return undefined;
    const bot = settings.bot(namespace, name);
    if (bot) return brainOf(bot, () => answeringOf(options, projectId, bot));
    if (assistant && endpoint === ASSISTANT_BOT) return brainOf(ASSISTANT, () => withModel(assistant));
    return scriptedBrain(endpoint, pace);
  };
}

/** What answers for a bot of a project. All is read anew, and keys are opened. */
function answeringOf({ settings, knowledge }: BotBrainsOptions, projectId: string, bot: Bot): Answering {
  const model = bot.usesKnowledge ? embeddingModelOf(settings, projectId) : undefined;
  const search: Search | undefined =
    model && ((query, signal) => knowledge.search(projectId, query, { model, signal }));
  return { ...withModel(settings.model(projectId, 'completion')), search };
}

const withModel = (model: ModelSettings | undefined): Answering => ({
  async model() {
    if (!model) throw new ModelError('MODEL_NOT_SET');
    return languageModel(model);
  },
  windowCharacters: model?.windowCharacters ?? USUAL_WINDOW,
});

/** How long one call of an embedding model may take, in ms: while it waits, no other document is indexed. */
const EMBED_MS = 120_000;

/** The embedding model of a project, if it has one. It is loaded when it is asked. */
export function embeddingModelOf(
  settings: Pick<Settings, 'model'>,
  projectId: string,
  limitMs = EMBED_MS,
): EmbeddingModel | undefined {
  const found = settings.model(projectId, 'embedding');
  return (
    found && {
      // The same name can be another model at another kind of provider.
      model: `${found.kind}/${found.deployment ?? found.model}`,
      async embed(texts, purpose, signal) {
        const limited = AbortSignal.any([signal, AbortSignal.timeout(limitMs)]);
        try {
          const { embeddings } = await (await embedder(found))(texts, purpose, limited);
          return embeddings.map((embedding) => Float32Array.from(embedding));
        } catch (error) {
          signal.throwIfAborted();
          throw new SettingsError(modelError(error).message);
        }
      },
    }
  );
}

/** What a run is told of an error of a model, or of the knowledge. */
function runErrorOf(error: unknown): RunError {
  if (error instanceof SettingsError) return { code: 'KNOWLEDGE_FAILED', message: error.message };
  const { code, message } = modelError(error);
  return { code, message };
}
