import { spreadText } from './format.ts';
import { aimGrids, peerNamed } from './grids.ts';
import { FIGURES, type FigureName, REFERENCES, type Results } from './results.ts';

/** How to read the tables of all figures, one paragraph each. */
export function legend(results: Results): string[] {
  return [
    `Figures are median (min–max) of ${results.rounds} rounds. ↓: lower is better, ↑: higher is better.`,
    ...(REFERENCES.some((name) => peerNamed(results, name))
      ? ['A ratio is the median of the peer divided by that of the reference, whichever way is better.']
      : []),
    ...(aimGrids(results).length > 0
      ? ['Under Aims, the ratio is of the two figures of each round: median (min–max).']
      : []),
    ...absentReferences(results),
  ];
}

/** Says which references were not measured, so that nobody looks for their ratios. */
export function absentReferences(results: Results): string[] {
  return REFERENCES.filter((name) => !peerNamed(results, name)).map(
    (name) => `${name} was not measured: there are no ratios to it.`,
  );
}

/** When and where the figures were taken. */
export function takenText({ takenAt, machine, node }: Results): string {
  return `Taken on ${takenAt.slice(0, 10)}: ${machine}, Node ${node.replace(/^v/, '')}.`;
}

/** When and where the figures were taken, of which versions, and the times without a peer. */
export function circumstances(results: Results): string[] {
  const { direct } = results;
  const versions = results.peers.flatMap(({ name, version }) => (version ? [`${name} (${version})`] : []));
  return [
    takenText(results),
    ...(versions.length > 0 ? [`Versions: ${versions.join(', ')}.`] : []),
    `With nothing between client and upstream: delay of an event ${spreadText(direct.delayP50, 3)} ms at p50 and ` +
      `${spreadText(direct.delayP99, 2)} ms at p99, first event after ${spreadText(direct.firstEventP50, 3)} ms ` +
      `at p50 and ${spreadText(direct.firstEventP99, 2)} ms at p99.`,
  ];
}

/** The notes of every peer; with `figures`, only those of peers that lack one of them. */
export function notes({ peers }: Results, figures?: readonly FigureName[]): string[] {
  return peers
    .filter((peer) => !figures || figures.some((name) => !peer.figures[name]))
    .flatMap((peer) => peer.notes.map((note) => `${peer.name}: ${note}`));
}

/** The figures that were not taken in every round, so that their spread is less certain. */
export function fewerRounds({ peers, rounds }: Results): string[] {
  return (Object.keys(FIGURES) as FigureName[]).flatMap((name) => {
    const taken = peers.flatMap((peer) => {
      const count = peer.figures[name]?.rounds.length;
      return count ? [{ peer: peer.name, count }] : [];
    });
    const counts = [...new Set(taken.map(({ count }) => count))].filter((count) => count < rounds);
    return counts.map((count) => {
      const of = taken.filter((one) => one.count === count);
      const whose = of.length === taken.length ? 'every peer' : of.map(({ peer }) => peer).join(', ');
      return `In ${count} of ${rounds} rounds only: ${FIGURES[name].title} (${whose}).`;
    });
  });
}
