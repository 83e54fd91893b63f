import { setImmediate as nextTick } from 'node:timers/promises';
import type { FinishReason, TextStreamPart, ToolSet } from 'ai';
import { type ModelStep, modelStep } from './model-step.ts';
import type { RunError, Step } from './steps.ts';

type Part = TextStreamPart<ToolSet>;

/** The service's limit on the steps of one request. */
export const MAX_STEPS = 30;
/** How much a run may take from its provider, in characters. */
const MAX_CHARACTERS = 2_000_000;
/** After how many parts others have their turn. */
const PARTS_AT_ONCE = 64;

/** The reasons for which a step ends as it should. */
export const isWhole = (reason: FinishReason) => reason === 'stop' || reason === 'tool-calls';

const UNFINISHED: RunError = {
  code: 'ANSWER_UNFINISHED',
  message: 'The model ended its answer for a reason that it does not tell, so the answer may not be whole.',
};

/** The stream ended without its end marker: what came may be half of it. */
const INTERRUPTED: RunError = {
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
function unfinished(reason: FinishReason, raw: string | undefined): RunError {
  if (reason === 'other' && raw === undefined) return INTERRUPTED;
  return ENDINGS[reason] ?? UNFINISHED;
}

const STEP_LIMIT: RunError = {
  code: 'STEP_LIMIT_EXCEEDED',
  message: `The run took more than ${MAX_STEPS} steps.`,
};

/** A provider that never ends must not fill the memory. */
const OUT_OF_BOUNDS: RunError = {
  code: 'ANSWER_TOO_LONG',
  message: 'The model sends more than one answer may have.',
};

export interface ModelAnswer {
  /** The parts of the SDK's stream, as they come. */
  readonly parts: AsyncIterable<Part>;
  readonly signal: AbortSignal;
  readonly runError: (error: unknown) => RunError;
}

/**
 * The steps of a model's answer. It ends at the first part that shows that the answer is not whole: what the model has
 * said in a step is complete only once the step has finished as it should.
 * @throws the reason of `signal` if it aborts
 */
export async function* answerSteps({ parts, signal, runError }: ModelAnswer): AsyncGenerator<Step> {
  let step = modelStep();
  let steps = 0;
  let count = 0;
  let characters = 0;
  for await (const part of parts) {
    if (signal.aborted) break;
    count += 1;
    characters += sizeOf(part);
    if (part.type === 'start-step') step = modelStep();
    if (part.type === 'finish-step') steps += 1;
    const error = characters > MAX_CHARACTERS ? OUT_OF_BOUNDS : errorOf(part, { runError, step, steps });
    if (error) return yield { error };
    if (part.type === 'finish') return;
    yield* stepsOf(part, step);
    if (count % PARTS_AT_ONCE === 0) await nextTick();
  }
  signal.throwIfAborted();
  yield { error: INTERRUPTED };
}

function stepsOf(part: Part, step: ModelStep): Iterable<Step> {
  if (part.type === 'text-delta') return step.say(part);
  if (part.type === 'tool-call') return step.call(part);
  if (part.type === 'tool-result' && !part.preliminary) return step.result(part);
  if (part.type === 'tool-error') return step.result({ ...part, output: undefined });
  return part.type === 'finish-step' ? step.complete() : [];
}

interface Place extends Pick<ModelAnswer, 'runError'> {
  readonly step: ModelStep;
  readonly steps: number;
}

/** What is wrong with the answer, if this part shows that anything is. */
function errorOf(part: Part, { runError, step, steps }: Place): RunError | undefined {
  if (part.type === 'error') return runError(part.error);
  if (part.type === 'finish-step' && !isWhole(part.finishReason))
    return unfinished(part.finishReason, part.rawFinishReason);
  if (part.type !== 'finish') return undefined;
  // The SDK ends without a word where it would have to go on.
  if (step.callsTools && steps >= MAX_STEPS) return STEP_LIMIT;
  const isDone = part.finishReason === 'stop' && !step.callsTools;
  return isDone ? undefined : unfinished('other', part.finishReason);
}

function sizeOf(part: Part): number {
  if ('text' in part) return part.text.length;
  if ('delta' in part) return part.delta.length;
  return part.type === 'tool-call' ? JSON.stringify(part.input ?? '').length + part.toolName.length : 1;
}
