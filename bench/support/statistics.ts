/** The value below which the share `q` of `values` lies (nearest rank); `values` must not be empty. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] as number;
}

/** What one figure came to over several rounds: `median (min–max)`. */
export function overRounds(figures: readonly number[], digits: number): string {
  const [median, min, max] = [quantile(figures, 0.5), Math.min(...figures), Math.max(...figures)];
  return `${median.toFixed(digits)} (${min.toFixed(digits)}–${max.toFixed(digits)})`;
}
