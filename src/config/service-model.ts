import { z } from 'zod';

/** The kinds of providers that SERVICE_MODEL can name, and the variable with the key of each. */
export const MODEL_KEYS = {
  openai: 'OPENAI_API_KEY',
  azure: 'AZURE_API_KEY',
  anthropic: 'ANTHROPIC_API_KEY',
  mistral: 'MISTRAL_API_KEY',
  google: 'GOOGLE_GENERATIVE_AI_API_KEY',
  'openai-compatible': 'OPENAI_COMPATIBLE_API_KEY',
} as const;

export type ModelKind = keyof typeof MODEL_KEYS;
export type ModelKeyName = (typeof MODEL_KEYS)[ModelKind];

/** The bot of the demo that answers with SERVICE_MODEL, as `namespace/bot`. */
export const ASSISTANT = 'demo/assistant';
/** The entries of BOTS that allow it. */
export const ALLOW_ASSISTANT: readonly string[] = [ASSISTANT, 'demo/*', '*/assistant', '*/*'];

/** The kinds that have no endpoint of their own. */
export const NEED_ENDPOINT: readonly ModelKind[] = ['azure', 'openai-compatible'];
/** The kinds that need no key. */
export const NEED_NO_KEY: readonly ModelKind[] = ['openai-compatible'];

const KINDS = Object.keys(MODEL_KEYS) as ModelKind[];
const KEY_NAMES: readonly string[] = Object.values(MODEL_KEYS);

/** `kind/model`; the name of the model may hold slashes. */
const NAME = /^([a-z-]+)\/([\x21-\x7e]{1,200})$/;

/** The kind and the name of a model, as SERVICE_MODEL has them. */
export const serviceModel = z
  .string()
  .refine((text) => kindIn(text) !== undefined, {
    message: `must be KIND/MODEL, where KIND is ${KINDS.join(', ')}`,
    abort: true,
  })
  .transform((text) => ({ kind: kindIn(text) as ModelKind, model: NAME.exec(text)?.[2] ?? '' }));

function kindIn(text: string | undefined): ModelKind | undefined {
  const [, kind] = NAME.exec(text ?? '') ?? [];
  return KINDS.find((one) => one === kind);
}

/**
 * Whether a variable is the key of a provider that SERVICE_MODEL does not name. Such a variable is of other programs, and
 * is not read.
 */
export function isForeignKey(name: string, serviceModel: string | undefined): boolean {
  const kind = kindIn(serviceModel);
  return isModelKey(name) && !(kind && MODEL_KEYS[kind] === name);
}

/** Whether a variable is the key of a provider. */
export const isModelKey = (name: string): boolean => KEY_NAMES.includes(name);
