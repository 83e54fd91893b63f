import type { Secret } from '../../secret.ts';
import { SettingsError } from './settings-error.ts';
import { checkEndpoint, checkVisible, checkWhole } from './values.ts';

/** What a model is for. */
export const MODEL_ROLES = ['completion', 'embedding'] as const;
export type ModelRole = (typeof MODEL_ROLES)[number];

/** The kinds of providers that have models for a role. */
export const MODEL_KINDS = {
  completion: ['openai', 'azure', 'anthropic', 'mistral', 'google', 'openai-compatible'],
  embedding: ['openai', 'azure', 'mistral', 'google', 'openai-compatible', 'voyage'],
} as const;
export type ModelKind = (typeof MODEL_KINDS)[ModelRole][number];

/** The window of a model of which nobody has said how much it takes, in characters. */
export const USUAL_WINDOW = 100_000;

/** A model of a provider, and how it is reached. */
export interface ModelSettings {
  readonly kind: ModelKind;
  /** The provider's name of the model. */
  readonly model: string;
  /** Only servers that are `openai-compatible` may have none. */
  readonly key?: Secret | undefined;
  /** The last four characters of the key, which may be shown; empty without one, or if it is short. */
  readonly keyHint: string;
  /** An address with http or https; the provider's own if it is missing. Azure and `openai-compatible` need one. */
  readonly endpoint?: string | undefined;
  /** Azure's name of the model, if it differs from `model`. */
  readonly deployment?: string | undefined;
  /** Azure's: a date such as 2024-10-21, or v1, which is also what a missing one means. */
  readonly apiVersion?: string | undefined;
  /** How many characters of instructions, history and message the model gets. */
  readonly windowCharacters: number;
}

/** What an administrator sets. Without a key, the one that is kept stays. */
export type NewModelSettings = Omit<ModelSettings, 'keyHint'>;

/** The kinds that have no address of their own, with one as it looks like. */
const NEED_ENDPOINT: Readonly<Record<string, string>> = {
  azure: 'https://NAME.openai.azure.com',
  'openai-compatible': 'http://127.0.0.1:11434/v1',
};

/** @throws SettingsError if a model for `role` cannot be reached so; the message does not show the key */
export function checkModel(role: ModelRole, settings: NewModelSettings): void {
  const { kind, model, key, endpoint, deployment, apiVersion, windowCharacters } = settings;
  const kinds: readonly string[] = MODEL_KINDS[role];
  if (!kinds.includes(kind))
    throw new SettingsError(`There are ${role} models of ${kinds.join(', ')}, and of no other kind.`, 'kind');
  checkVisible('The name of a model', model, { field: 'model', max: 200 });
  if (key) checkVisible('A key', key.open(), { field: 'key', max: 2000 });
  if (endpoint !== undefined) checkEndpoint(endpoint);
  else if (NEED_ENDPOINT[kind])
    throw new SettingsError(
      `A model of ${kind} needs an endpoint, such as ${NEED_ENDPOINT[kind]}`,
      'endpoint',
    );
  for (const [field, text] of Object.entries({ deployment, apiVersion }))
    if (text !== undefined && !/^[A-Za-z0-9._-]{1,100}$/.test(text))
      throw new SettingsError(
        'A deployment and an API version have 1 to 100 letters, digits or . _ -',
        field,
      );
  checkWhole('A window of characters', windowCharacters, {
    field: 'windowCharacters',
    min: 1000,
    max: 10_000_000,
  });
}

/** The least length of a key of which four characters may be shown. */
const LEAST_TO_SHOW = 16;

/** What may be shown of a key. */
export function hintOf(key: Secret | undefined): string {
  const text = key?.open() ?? '';
  return text.length < LEAST_TO_SHOW ? '' : text.slice(-4);
}
