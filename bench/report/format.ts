import { figureOf } from '../support/statistics.ts';
import { FIGURES, type Figure, type FigureName } from './results.ts';

/** Shown if there is no figure. */
export const MISSING = '–';

/** `value` with `digits` after the point and commas between thousands: `1,234.5`. Never a minus before zero. */
export function numberText(value: number, digits: number): string {
  return value.toLocaleString('en-US', {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
    signDisplay: 'negative',
  });
}

/** One figure as `median (min–max)`, with as many digits as `FIGURES` gives it. */
export function spreadText(figure: Figure | undefined, digits: number): string {
  if (!figure) return MISSING;
  const [median, min, max] = [figure.median, figure.min, figure.max].map((one) => numberText(one, digits));
  return `${median} (${min}–${max})`;
}

/**
 * The median of `figure` as a multiple of that of `reference`, with about three significant digits. Added times can be
 * zero or negative by noise; then there is no ratio.
 */
export function ratioText(figure: Figure | undefined, reference: Figure | undefined): string {
  if (!figure || !reference || reference.median <= 0 || figure.median < 0) return MISSING;
  const ratio = figure.median / reference.median;
  if (ratio > 0 && ratio < 0.005) return '<0.01';
  return numberText(ratio, ratio < 9.995 ? 2 : ratio < 99.95 ? 1 : 0);
}

/**
 * The ratio of two figures in each round, as `median (min–max)`: both were taken one after the other there, so that other
 * load of the machine is in both. There is none if a round of one of them is missing or is noise around zero.
 */
export function pairedText(figure: Figure | undefined, other: Figure | undefined): string {
  if (!figure || !other || figure.rounds.length !== other.rounds.length) return MISSING;
  if (figure.rounds.some((value) => value < 0) || other.rounds.some((value) => value <= 0)) return MISSING;
  return spreadText(
    figureOf(figure.rounds.map((value, round) => value / (other.rounds[round] as number))),
    2,
  );
}

/** A column's heading: what the figure is, its unit unless it stands for ratios, and which way is better. */
export function headingOf(name: FigureName, { unit }: { unit: boolean }): string {
  const figure = FIGURES[name];
  const arrow = figure.better === 'lower' ? '↓' : '↑';
  return unit ? `${figure.title}, ${figure.unit} ${arrow}` : `${figure.title} ${arrow}`;
}

/** True for the peers that are this project. */
export function isOwn({ name }: { readonly name: string }): boolean {
  return /^bot-relay\b/.test(name);
}
