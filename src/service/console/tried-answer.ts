import type { Brain } from '../brains/steps.ts';

/** The whole answer of a bot that was tried. */
export interface TriedAnswer {
  readonly text: string;
  /** What the answer ended with, if it failed, as a plain sentence. */
  readonly problem?: string | undefined;
}

/** Asks a bot one question without a conversation, and waits for its whole answer. */
export async function triedAnswer(brain: Brain, text: string, signal: AbortSignal): Promise<TriedAnswer> {
  const messages: string[] = [];
  const said = () => messages.filter((one) => one !== '').join('\n\n');
  const ask = { kind: 'message', text, isAllowed: true, files: [], turns: [] } as const;
  for await (const step of brain.answer(ask, signal)) {
    if ('startMessage' in step) messages.push('');
    if ('say' in step) messages.push((messages.pop() ?? '') + step.say);
    if ('error' in step) return { text: said(), problem: step.error.message };
  }
  return { text: said() };
}

/** How long a bot that is tried may take, in ms. */
const LIMIT_MS = 60_000;
const LATE: TriedAnswer = { text: '', problem: 'The answer took longer than a minute, and was given up.' };

/** Waits for the answer of `ask`, but not longer than a minute, nor longer than until `left` aborts. */
export function answerInTime(
  ask: (signal: AbortSignal) => Promise<TriedAnswer>,
  left: AbortSignal,
): Promise<TriedAnswer> {
  const signal = AbortSignal.any([AbortSignal.timeout(LIMIT_MS), left]);
  const late = new Promise<TriedAnswer>((resolve) => {
    if (signal.aborted) resolve(LATE);
    signal.addEventListener('abort', () => resolve(LATE), { once: true });
  });
  const answer = ask(signal).catch((error) => {
    if (signal.aborted) return LATE;
    throw error;
  });
  return Promise.race([answer, late]);
}
