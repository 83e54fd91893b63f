import { ANSWERS } from './bot-answers.ts';

/** The bots that the allow-list's `patterns` let pass: by name, and of the demo's own those that a `*` stands for. */
export function demoBots(patterns: readonly string[]): string[] {
  const named = patterns.flatMap((pattern) => {
    const [namespace, bot] = pattern.split('/');
    if (!pattern.includes('*')) return [pattern];
    return Object.keys(ANSWERS).filter((one) => {
      const [its, name] = one.split('/');
      return (namespace === '*' || namespace === its) && (bot === '*' || bot === name);
    });
  });
  return [...new Set(named)];
}

/** A bot that the allow-list's `patterns` let pass; one that the demo has, if there is any. */
export function aBotOf(patterns: readonly string[]): string {
  const bots = demoBots(patterns);
  const [namespace = '', bot = ''] = (patterns[0] ?? '').split('/');
  const made = `${namespace === '*' ? 'demo' : namespace}/${bot === '*' ? 'echo' : bot}`;
  return bots.find((one) => Object.hasOwn(ANSWERS, one)) ?? bots[0] ?? made;
}
