import type { Figure } from '../report/results.ts';

/** The value below which the share `q` of `values` is (nearest rank); `values` must not be empty. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] as number;
}

/**
 * Summarizes one figure over its rounds. The median of an even number of rounds is the mean of the two in the middle.
 * @throws RangeError if there are no rounds, or if one of them is not a finite number, which JSON cannot hold
 */
export function figureOf(rounds: readonly number[]): Figure {
  if (rounds.length === 0 || !rounds.every(Number.isFinite))
    throw new RangeError(`No figure comes of these rounds: [${rounds.join(', ')}]`);
  const sorted = Float64Array.from(rounds).sort();
  const at = (index: number) => sorted[index] as number;
  const half = sorted.length / 2;
  const median = (at(Math.ceil(half) - 1) + at(Math.floor(half))) / 2;
  return { median, min: at(0), max: at(sorted.length - 1), rounds: [...rounds] };
}

/** One figure over several rounds as `median (min–max)`, with `digits` after the point. */
export function overRounds(figures: readonly number[], digits: number): string {
  const { median, min, max } = figureOf(figures);
  return `${median.toFixed(digits)} (${min.toFixed(digits)}–${max.toFixed(digits)})`;
}
