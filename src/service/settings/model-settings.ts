import type { Secret } from '../../secret.ts';

/** What a project's model is for. */
export type ModelRole = 'completion' | 'embedding';

/** The kinds of providers. Voyage only embeds, and Anthropic does not. */
export type ModelKind =
  | 'openai'
  | 'azure'
  | 'anthropic'
  | 'mistral'
  | 'google'
  | 'openai-compatible'
  | 'voyage';

/** A model of a provider, and how it is reached. */
export interface ModelSettings {
  readonly kind: ModelKind;
  /** The provider's name of the model. */
  readonly model: string;
  /** Only servers that are `openai-compatible` may have none. */
  readonly key?: Secret;
  /** The last four characters of the key, or nothing. */
  readonly keyHint: string;
  /** An address with http or https; the provider's own if it is missing. Azure and `openai-compatible` need one. */
  readonly endpoint?: string;
  /** Azure's name of the model, if it differs from `model`. */
  readonly deployment?: string;
  /** Azure's: a date such as 2024-10-21, or v1, which is also what a missing one means. */
  readonly apiVersion?: string;
  /** How many characters of instructions, history and message the model gets. */
  readonly windowCharacters: number;
}
