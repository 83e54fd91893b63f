import { chartPanel, LABEL_GAP, ROW_HEIGHT } from './chart-panel.ts';
import { MISSING, numberText } from './format.ts';
import { SUMMARY } from './grids.ts';
import { takenText } from './remarks.ts';
import { FIGURES, type Results } from './results.ts';
import { wrap } from './wrap.ts';
import { escapeXml } from './xml.ts';

/** All in px of the picture's own coordinates. */
const WIDTH = 800;
const MARGIN = 16;
const COLUMNS = 2;
const PANEL_GAP = 24;
const TITLE_HEIGHT = 36;
const FOOTER_LINE = 18;
/** Generous for letters of 12 px in any sans-serif font. */
const LETTER = 6.4;

/**
 * The chart has its own background, since the page around it may be light or dark, whatever the reader's system prefers.
 * Texts have a contrast of 4.5:1 in both schemes.
 */
const STYLE = `
text { font: 12px system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Helvetica, Arial, sans-serif; fill: #1f2328; }
.title, .own { font-weight: 600; }
.title { font-size: 13px; }
.unit { font-weight: 400; }
.muted { fill: #59636e; }
.value { font-variant-numeric: tabular-nums; }
.ground { fill: #ffffff; stroke: #d1d9e0; }
.axis { stroke: #9aa4ae; }
.bar { fill: #a9b4c0; }
.bar.own { fill: #2f81f7; }
.whisker { stroke: #1f2328; fill: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.muted { fill: #9198a1; }
.ground { fill: #0d1117; stroke: #3d444d; }
.axis { stroke: #656c76; }
.bar { fill: #4b5561; }
.whisker { stroke: #e6edf3; }
}`;

/**
 * The figures of the summary as an SVG, one panel each: a bar for the median of each peer, a whisker from the
 * lowest to the highest round, and the median in digits. The bars of this project have a colour of their own.
 */
export function chart(results: Results): string {
  const { peers } = results;
  const labels = Math.ceil(Math.max(0, ...peers.map(({ name }) => name.length)) * LETTER) + LABEL_GAP;
  const width = (WIDTH - 2 * MARGIN - labels - (COLUMNS - 1) * PANEL_GAP) / COLUMNS;
  const height = TITLE_HEIGHT + peers.length * ROW_HEIGHT + PANEL_GAP / 2;
  const panels = SUMMARY.map((figure, index) => {
    const column = index % COLUMNS;
    const x = MARGIN + labels + column * (width + PANEL_GAP);
    const y = Math.floor(index / COLUMNS) * height;
    return chartPanel(peers, figure, { x, y, width, titleHeight: TITLE_HEIGHT, labels: column === 0 });
  });
  const bottom = Math.ceil(SUMMARY.length / COLUMNS) * height + FOOTER_LINE;
  const footer = footerLines(results).map(
    (line, index) =>
      `<text class="muted" x="${MARGIN}" y="${bottom + index * FOOTER_LINE}">${escapeXml(line)}</text>`,
  );
  return picture(bottom + footer.length * FOOTER_LINE, description(results), [...panels, ...footer]);
}

function picture(height: number, description: string, parts: readonly string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title description" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}">`,
    '<title id="title">bot-relay beside other proxies</title>',
    `<desc id="description">${escapeXml(description)}</desc>`,
    `<style>${STYLE}</style>`,
    `<rect class="ground" x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="6"/>`,
    ...parts,
    '</svg>',
    '',
  ].join('\n');
}

/** The content of the picture as text, for people who cannot see it. */
function description({ peers, rounds }: Results): string {
  const panels = SUMMARY.map((name) => {
    const { title, unit, digits } = FIGURES[name];
    const values = peers.map((peer) => {
      const figure = peer.figures[name];
      return `${peer.name} ${figure ? numberText(figure.median, digits) : 'not measured'}`;
    });
    return `${title}, in ${unit}: ${values.join('; ')}.`;
  });
  return [`Bar charts of medians of ${rounds} rounds; lower is better.`, ...panels].join(' ');
}

function footerLines(results: Results): string[] {
  const how = `Bars: medians of ${results.rounds} rounds. Whiskers: lowest and highest round. Lower is better.`;
  const missing = SUMMARY.some((name) => results.peers.some(({ figures }) => !figures[name]));
  const why = missing ? [`${MISSING}: could not be measured.`] : [];
  return [[how, ...why].join(' '), takenText(results)].flatMap((line) =>
    wrap(line, (WIDTH - 2 * MARGIN) / LETTER),
  );
}
