import type { FinishReason } from 'ai';
import type { RunError } from './steps.ts';

/** The reasons for which a step ends as it should. */
export const isWhole = (reason: FinishReason) => reason === 'stop' || reason === 'tool-calls';

const UNFINISHED: RunError = {
  code: 'ANSWER_UNFINISHED',
  message: 'The model ended its answer for a reason that it does not tell, so the answer may not be whole.',
};

/** The stream ended without its end marker: what came may be half of it. */
export const INTERRUPTED: RunError = {
  code: 'ANSWER_INTERRUPTED',
  message: 'The answer of the model broke off before its end.',
};

const ENDINGS: Readonly<Partial<Record<FinishReason, RunError>>> = {
  length: { code: 'ANSWER_TOO_LONG', message: 'The answer is longer than the model may write at once.' },
  'content-filter': {
    code: 'CONTENT_FILTERED',
    message: "The filter of the model's provider held this answer back.",
  },
  error: { code: 'MODEL_FAILED', message: 'The model failed while it answered.' },
  interrupted: INTERRUPTED,
};

/**
 * Why an answer is not whole.
 * @param raw the provider's own word; the SDK reports `other` without one if the provider gave no reason at all
 */
export function unfinished(reason: FinishReason, raw: string | undefined): RunError {
  if (reason === 'other' && raw === undefined) return INTERRUPTED;
  return ENDINGS[reason] ?? UNFINISHED;
}

export const stepLimit = (steps: number): RunError => ({
  code: 'STEP_LIMIT_EXCEEDED',
  message: `The run took more than ${steps} steps.`,
});

export const messageTooLong = (characters: number): RunError => ({
  code: 'MESSAGE_TOO_LONG',
  message: `The message, its files and the bot's instructions are longer than its model takes: ${characters} characters.`,
});

/** A provider that never ends must not fill the memory. */
export const OUT_OF_BOUNDS: RunError = {
  code: 'ANSWER_TOO_LONG',
  message: 'The model sends more than one answer may have.',
};
