import type { Brain } from '../brains/steps.ts';

/** The whole answer of a bot that was tried. */
export interface TriedAnswer {
  readonly text: string;
  /** What the answer ended with, if it failed, as a plain sentence. */
  readonly problem?: string | undefined;
}

/** How long a bot that is tried may take, in ms. */
const LIMIT_MS = 60_000;
const LATE: TriedAnswer = { text: '', problem: 'The answer took longer than a minute, and was given up.' };

/** Asks a bot one question without a conversation, and waits for its whole answer: a minute, or until `left` aborts. */
export async function triedAnswer(brain: Brain, text: string, left: AbortSignal): Promise<TriedAnswer> {
  const signal = AbortSignal.any([AbortSignal.timeout(LIMIT_MS), left]);
  const messages: string[] = [];
  const said = () => messages.filter((one) => one !== '').join('\n\n');
  const ask = { kind: 'message', text, isAllowed: true, files: [], turns: [] } as const;
  try {
    for await (const step of brain.answer(ask, signal)) {
      if ('startMessage' in step) messages.push('');
      if ('say' in step) messages.push((messages.pop() ?? '') + step.say);
      if ('error' in step) return { text: said(), problem: step.error.message };
    }
    return { text: said() };
  } catch (error) {
    if (signal.aborted) return LATE;
    throw error;
  }
}
