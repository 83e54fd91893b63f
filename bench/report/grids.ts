import { headingOf, isOwn, MISSING, numberText, pairedText, ratioText, spreadText } from './format.ts';
import { AIMS, FIGURES, type FigureName, type PeerResults, REFERENCES, type Results } from './results.ts';

/** A table before it is formatted, with a row per peer. */
export interface Grid {
  /** Empty if the table continues the one before it. */
  readonly title: string;
  readonly headings: readonly string[];
  readonly rows: readonly GridRow[];
}

export interface GridRow {
  readonly name: string;
  /** True for the peers that are this project. */
  readonly own: boolean;
  readonly cells: readonly string[];
}

/** Every figure, once, in tables that are narrow enough for a terminal of 100 columns and for a page. */
export const THEMES: readonly { readonly title: string; readonly figures: readonly FigureName[] }[] = [
  { title: 'CPU', figures: ['cpuPerEvent', 'cpuPerMessage', 'throughput'] },
  { title: 'Delay of events', figures: ['addedDelayP50', 'addedDelayP99'] },
  { title: 'Time to the first event', figures: ['addedFirstEventP50', 'addedFirstEventP99'] },
  { title: 'Memory', figures: ['memory1000', 'memory5000', 'memory9000'] },
  { title: 'Readers that stall or leave', figures: ['stalledPeak', 'aborts'] },
];

/** Ratios are short, so that several themes fit beside each other. */
const RATIO_COLUMNS: readonly (readonly FigureName[])[] = [THEMES.slice(0, 3), THEMES.slice(3)].map(
  (themes) => themes.flatMap(({ figures }) => figures),
);

/** What docs/performance.md tells, in the table and in the chart. */
export const SUMMARY: readonly FigureName[] = ['cpuPerEvent', 'cpuPerMessage', 'memory5000', 'addedDelayP50'];

/** `median (min–max)` of every peer: of `figures` in one grid, or of all of them in one for each theme. */
export function spreadGrids({ peers }: Results, figures?: readonly FigureName[]): Grid[] {
  const themes = figures ? [{ title: '', figures }] : THEMES;
  return themes.map((theme) => ({
    title: theme.title,
    headings: theme.figures.map((name) => headingOf(name, { unit: true })),
    rows: rowsOf(peers, (peer) =>
      theme.figures.map((name) => spreadText(peer.figures[name], FIGURES[name].digits)),
    ),
  }));
}

/** The medians of every peer as multiples of those of each reference that was measured. */
export function ratioGrids(results: Results, figures?: readonly FigureName[]): Grid[] {
  return REFERENCES.flatMap((reference) => {
    const other = peerNamed(results, reference);
    if (!other) return [];
    return (figures ? [figures] : RATIO_COLUMNS).map((columns, index) => ({
      title: index === 0 ? `Ratio to ${reference}` : '',
      headings: columns.map((name) => headingOf(name, { unit: false })),
      rows: rowsOf(results.peers, (peer) =>
        columns.map((name) => ratioText(peer.figures[name], other.figures[name])),
      ),
    }));
  });
}

/** What each peer of this project aims at, and what it has reached, of the pairs of peers that were measured. */
export function aimGrids(results: Results): Grid[] {
  return Object.entries(AIMS).flatMap(([peer, aims]) => {
    const own = peerNamed(results, peer);
    const rows = aims.flatMap(({ figure, other, atMost }) => {
      const its = peerNamed(results, other);
      if (!own || !its) return [];
      const cells = [pairedText(own.figures[figure], its.figures[figure]), String(atMost)];
      return [{ name: `${FIGURES[figure].title} / ${other}`, own: false, cells }];
    });
    return rows.length > 0 ? [{ title: `Aims of ${peer}`, headings: ['ratio', 'at most'], rows }] : [];
  });
}

/** The medians of the figures in `SUMMARY`, each with its ratio to the first reference. */
export function summaryGrid(results: Results): Grid {
  const reference = peerNamed(results, REFERENCES[0]);
  return {
    title: '',
    headings: SUMMARY.flatMap((name) => [headingOf(name, { unit: true }), 'ratio']),
    rows: rowsOf(results.peers, (peer) =>
      SUMMARY.flatMap((name) => {
        const figure = peer.figures[name];
        const median = figure ? numberText(figure.median, FIGURES[name].digits) : MISSING;
        return [median, ratioText(figure, reference?.figures[name])];
      }),
    ),
  };
}

/** The peer of that name, if it was measured. */
export function peerNamed({ peers }: Results, name: string): PeerResults | undefined {
  return peers.find((peer) => peer.name === name);
}

function rowsOf(peers: readonly PeerResults[], cellsOf: (peer: PeerResults) => readonly string[]): GridRow[] {
  return peers.map((peer) => ({ name: peer.name, own: isOwn(peer), cells: cellsOf(peer) }));
}
