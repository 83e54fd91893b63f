import { isOwn, MISSING, numberText } from './format.ts';
import { FIGURES, type FigureName, type PeerResults } from './results.ts';
import { escapeXml } from './xml.ts';

/** The distance from one peer to the next, in px. */
export const ROW_HEIGHT = 24;
const BAR_HEIGHT = 14;
const WHISKER_HEIGHT = 8;
export const LABEL_GAP = 10;
/** The distance from the end of a whisker to its value. */
const VALUE_GAP = 7;
/** The space for the value of the longest bar. */
const VALUE_WIDTH = 52;
/** The distance from the middle of a row to the baseline of its text of 12 px. */
const BASELINE = 4;

/** Where a panel stands in the picture, in px. */
export interface Place {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  /** The distance from `y` to the first row. */
  readonly titleHeight: number;
  /** Whether the names of the peers are left of `x`. */
  readonly labels: boolean;
}

/** One figure of all peers: a bar, a whisker and the median of each, on its own scale from 0. */
export function chartPanel(peers: readonly PeerResults[], name: FigureName, place: Place): string {
  const { title, unit } = FIGURES[name];
  const taken = peers.flatMap(({ figures }) => figures[name] ?? []);
  const low = Math.min(0, ...taken.map(({ min }) => min));
  const high = Math.max(0, ...taken.map(({ max }) => max));
  const perUnit = high > low ? (place.width - VALUE_WIDTH) / (high - low) : 0;
  const at = (value: number) => place.x + (value - low) * perUnit;
  const top = place.y + place.titleHeight;
  const axis = round(at(0));
  return [
    `<text class="title" x="${round(place.x)}" y="${place.y + 24}">${escapeXml(sentence(title))}<tspan class="muted unit" dx="6">${escapeXml(unit)}</tspan></text>`,
    ...peers.map((peer, row) => peerRow(peer, name, { place, at, middle: top + (row + 0.5) * ROW_HEIGHT })),
    `<line class="axis" x1="${axis}" x2="${axis}" y1="${top}" y2="${top + peers.length * ROW_HEIGHT}"/>`,
  ].join('\n');
}

interface Row {
  readonly place: Place;
  /** Where on the scale a value lies, in px from the left. */
  readonly at: (value: number) => number;
  readonly middle: number;
}

function peerRow(peer: PeerResults, name: FigureName, { place, at, middle }: Row): string {
  const figure = peer.figures[name];
  const own = isOwn(peer) ? ' own' : '';
  const text = (kind: string, x: number, content: string) =>
    `<text class="${kind}" x="${round(x)}" y="${middle + BASELINE}">${escapeXml(content)}</text>`;
  const label = text(`label${own}`, place.x - LABEL_GAP, peer.name).replace(
    '<text',
    '<text text-anchor="end"',
  );
  const labels = place.labels ? [label] : [];
  if (!figure) return [...labels, text('value muted', at(0) + VALUE_GAP, MISSING)].join('\n');
  const [left, right] = [Math.min(at(0), at(figure.median)), Math.max(at(0), at(figure.median))];
  const [low, high] = [round(at(figure.min)), round(at(figure.max))];
  const [above, below] = [middle - WHISKER_HEIGHT / 2, middle + WHISKER_HEIGHT / 2];
  return [
    ...labels,
    `<rect class="bar${own}" x="${round(left)}" y="${middle - BAR_HEIGHT / 2}" width="${round(right - left)}" height="${BAR_HEIGHT}"/>`,
    `<path class="whisker" d="M${low} ${middle}H${high}M${low} ${above}V${below}M${high} ${above}V${below}"/>`,
    text(
      `value${own}`,
      Math.max(at(0), at(figure.max)) + VALUE_GAP,
      numberText(figure.median, FIGURES[name].digits),
    ),
  ].join('\n');
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Rounds to tenths of a px, which is exact enough for every screen. */
function round(px: number): number {
  return Math.round(px * 10) / 10;
}
