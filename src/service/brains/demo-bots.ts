import { SCRIPTED_BOTS } from './scripted.ts';

/**
 * The bots that the allow-list's `patterns` allow: those named, and the demo's own bots that a `*` matches. `known` are
 * the bots that the demo has.
 */
export function demoBots(patterns: readonly string[], known = SCRIPTED_BOTS): string[] {
  const named = patterns.flatMap((pattern) => {
    const [namespace, bot] = pattern.split('/');
    if (!pattern.includes('*')) return [pattern];
    return known.filter((one) => {
      const [itsNamespace, itsName] = one.split('/');
      return (namespace === '*' || namespace === itsNamespace) && (bot === '*' || bot === itsName);
    });
  });
  return [...new Set(named)];
}

/** One bot that the allow-list's `patterns` allow; a bot of the demo, if any is allowed. */
export function allowedDemoBot(patterns: readonly string[], known = SCRIPTED_BOTS): string {
  const bots = demoBots(patterns, known);
  const [namespace = '', bot = ''] = (patterns[0] ?? '').split('/');
  const made = `${namespace === '*' ? 'demo' : namespace}/${bot === '*' ? 'echo' : bot}`;
  return bots.find((one) => known.includes(one)) ?? bots[0] ?? made;
}
