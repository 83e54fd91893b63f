import { parseArgs } from 'node:util';

const USAGE = `Usage: npm run bench -- [--rounds N] [--scale X] [--only NAME,NAME] [--out FOLDER | --record]
  --rounds  how often each figure is taken of each peer, in turns (5)
  --scale   how many messages, events, bytes and streams a round has, as a multiple of the usual (1)
  --only    the peers to compare, by their names in the table, comma separated (all)
  --out     the folder for results.json and results.svg (bench-results)
  --record  keeps the results in the project instead, with its chart and the tables of its documents
  --profile shows where the relay spends its time and what it allocates, instead of the comparison; writes both profiles
            into the folder; with --record it keeps the table in docs/performance.md
`;
const EX_USAGE = 64;

/** The settings of one run of the comparison. */
export interface Settings {
  readonly rounds: number;
  readonly scale: number;
  readonly only: readonly string[] | undefined;
  /** A folder; if undefined, the results and documents of the project are updated. */
  readonly out: string | undefined;
  /** Whether to profile the relay instead of a comparison. */
  readonly profile: boolean;
}

/** Reads the command line. If it is wrong, prints the usage and ends the process. `names` are the names of the peers. */
export function settingsFrom(args: readonly string[], names: readonly string[]): Settings {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        rounds: { type: 'string', default: '5' },
        scale: { type: 'string', default: '1' },
        only: { type: 'string' },
        out: { type: 'string' },
        record: { type: 'boolean', default: false },
        profile: { type: 'boolean', default: false },
      },
    });
    const { only, out = 'bench-results', record, profile } = values;
    const [rounds, scale] = [Number(values.rounds), Number(values.scale)];
    if (!Number.isInteger(rounds) || rounds < 1) throw new Error('--rounds takes a whole number from 1 on');
    if (!(scale > 0 && scale < 100)) throw new Error('--scale takes a number above 0');
    const wanted = only?.split(',').map((name) => name.trim());
    const unknown = wanted?.find((name) => !names.includes(name));
    if (unknown !== undefined) throw new Error(`--only: ${unknown} is none of: ${names.join(', ')}`);
    return { rounds, scale, only: wanted, out: record ? undefined : out, profile };
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n${USAGE}`);
    process.exit(EX_USAGE);
  }
}
