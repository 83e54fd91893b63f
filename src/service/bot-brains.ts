import type { Admission } from './admit-call.ts';
import { modelBrain } from './brains/model.ts';
import { type Speed, scriptedBrain } from './brains/scripted.ts';
import type { Brain, Search } from './brains/steps.ts';
import type { Knowledge } from './knowledge/knowledge.ts';
import { languageModel } from './models/language-model.ts';
import { ModelError } from './models/provider-error.ts';
import { embeddingModelOf, modelRunError } from './project-models.ts';
import type { Bot } from './settings/bot.ts';
import { hintOf, type ModelSettings } from './settings/model-settings.ts';
import { DEMO, type Settings } from './settings/settings.ts';

/** The bot of SERVICE_MODEL. It is in memory alone. */
const ASSISTANT: Bot = {
  ...{ namespace: DEMO, name: 'assistant', title: 'Assistant' },
  instructions: 'You are a helpful assistant. Answer in the language of the user.',
  ...{ suggestions: [], tools: ['clock'], usesKnowledge: false },
};

/** Its name, as `namespace/bot`. */
export const ASSISTANT_BOT = `${ASSISTANT.namespace}/${ASSISTANT.name}`;

/** The window of a model of which nobody has said how much it takes, in characters. */
const USUAL_WINDOW = 100_000;

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
  /** What answers for a bot of the settings; if not given, the model of its project. */
  readonly modelBrainOf?: ((projectId: string, bot: Bot) => Brain) | undefined;
  /** Bots of every project, which need no settings, by `namespace/bot`. */
  readonly brains?: Readonly<Record<string, Brain>> | undefined;
}

/**
 * Finds what answers for a bot of a project: first the settings, then, for the project with the namespace `demo`, the
 * assistant and the scripts.
 */
export function botBrains(options: BotBrainsOptions): Admission['brainOf'] {
  const { settings, assistant, speed, brains = {}, modelBrainOf = brainOfProject(options) } = options;
  const pace = { wordMs: 60, silenceMs: 40_000, ...speed };
  return (projectId, namespace, name) => {
    const endpoint = `${namespace}/${name}`;
    if (Object.hasOwn(brains, endpoint)) return brains[endpoint];
    if (!settings.namespaces(projectId).includes(namespace)) return undefined;
    const bot = settings.bot(namespace, name);
    if (bot) return modelBrainOf(projectId, bot);
    if (assistant && endpoint === ASSISTANT_BOT)
      return brainOf(options, { bot: ASSISTANT, model: assistant });
    return scriptedBrain(endpoint, pace);
  };
}

interface Answering {
  readonly bot: Bot;
  readonly model: ModelSettings | undefined;
  readonly search?: Search | undefined;
}

function brainOf({ onModelError }: BotBrainsOptions, { bot, model, search }: Answering): Brain {
  return modelBrain({
    bot,
    async model() {
      if (!model) throw new ModelError('MODEL_NOT_SET');
      return languageModel(model);
    },
    windowCharacters: model?.windowCharacters ?? USUAL_WINDOW,
    ...(search && { search }),
    providerError(error) {
      const told = modelRunError(error);
      onModelError?.(`${bot.namespace}/${bot.name}`, told.code);
      return told;
    },
  });
}

const brainOfProject =
  (options: BotBrainsOptions) =>
  (projectId: string, bot: Bot): Brain => {
    const { settings, knowledge } = options;
    const embedding = bot.usesKnowledge ? embeddingModelOf(settings, projectId) : undefined;
    const search: Search | undefined =
      embedding && ((query, signal) => knowledge.search(projectId, query, { model: embedding, signal }));
    return brainOf(options, { bot, model: settings.model(projectId, 'completion'), search });
  };
