/** Every figure of the comparison: its name in the file of results, and how it is shown. */
export const FIGURES = {
  cpuPerEvent: { title: 'CPU per event', unit: 'µs', digits: 1, better: 'lower' },
  cpuPerMessage: { title: 'CPU per message', unit: 'µs', digits: 0, better: 'lower' },
  addedDelayP50: { title: 'added delay of an event, p50', unit: 'ms', digits: 3, better: 'lower' },
  addedDelayP99: { title: 'added delay of an event, p99', unit: 'ms', digits: 2, better: 'lower' },
  addedFirstEventP50: { title: 'added time to the first event, p50', unit: 'ms', digits: 3, better: 'lower' },
  addedFirstEventP99: { title: 'added time to the first event, p99', unit: 'ms', digits: 2, better: 'lower' },
  memory1000: { title: 'memory per stream, 1,000 open', unit: 'KiB', digits: 1, better: 'lower' },
  memory5000: { title: 'memory per stream, 5,000 open', unit: 'KiB', digits: 1, better: 'lower' },
  memory9000: { title: 'memory per stream, 9,000 open', unit: 'KiB', digits: 1, better: 'lower' },
  throughput: { title: 'carried per CPU second', unit: 'MB', digits: 0, better: 'higher' },
  stalledPeak: { title: 'peak memory for a stalled reader', unit: 'MiB', digits: 1, better: 'lower' },
  aborts: { title: '100 clients leave: the last is seen after', unit: 'ms', digits: 1, better: 'lower' },
} as const;

export type FigureName = keyof typeof FIGURES;

/** One figure of one peer, over all rounds in which it could be taken, in the unit of `FIGURES`. */
export interface Figure {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  /** The value of each round, in order. */
  readonly rounds: readonly number[];
}

export interface PeerResults {
  /** The name of the peer in tables, such as `nginx` or `bot-relay with Redis`. */
  readonly name: string;
  /** The version of the package or program; empty if it has none. */
  readonly version: string;
  readonly figures: Readonly<Partial<Record<FigureName, Figure>>>;
  /** Why figures are missing, if any are. */
  readonly notes: readonly string[];
}

/** The results of one run of the comparison, which are stored as JSON. */
export interface Results {
  /** When the run ended (ISO 8601). */
  readonly takenAt: string;
  readonly machine: string;
  readonly node: string;
  readonly rounds: number;
  /** The times without a peer between client and upstream, in ms. Added times are relative to them. */
  readonly direct: {
    readonly delayP50: Figure;
    readonly delayP99: Figure;
    readonly firstEventP50: Figure;
    readonly firstEventP99: Figure;
  };
  /** In the order of the table. */
  readonly peers: readonly PeerResults[];
}

/** The peers that every figure is compared to, by name. */
export const REFERENCES = ['http-proxy-middleware 4', 'nginx'] as const;

/** What a peer of this project may cost: a figure as a multiple of the same figure of another peer. */
export interface Aim {
  readonly figure: FigureName;
  readonly other: string;
  readonly atMost: number;
}

/** By the names of the peers of this project. */
export const AIMS: Readonly<Record<string, readonly Aim[]>> = {
  'bot-relay': [
    { figure: 'cpuPerMessage', other: 'bot-relay, JOIN=off', atMost: 1.1 },
    { figure: 'addedFirstEventP50', other: 'naive stack', atMost: 0.7 },
    { figure: 'cpuPerEvent', other: 'http-proxy-middleware 4', atMost: 0.95 },
    { figure: 'addedDelayP99', other: 'http-proxy-middleware 4', atMost: 1 },
    { figure: 'memory1000', other: 'node:http pipe', atMost: 1 },
    { figure: 'memory5000', other: 'node:http pipe', atMost: 1 },
    { figure: 'memory9000', other: 'node:http pipe', atMost: 1 },
  ],
  'bot-relay, JOIN=off': [{ figure: 'cpuPerMessage', other: 'naive stack', atMost: 0.45 }],
  'bot-relay with Redis': [
    { figure: 'cpuPerMessage', other: 'bot-relay with Redis, JOIN=off', atMost: 1.25 },
    { figure: 'addedFirstEventP50', other: 'naive stack with Redis', atMost: 0.75 },
  ],
  'bot-relay with Redis, JOIN=off': [
    { figure: 'cpuPerMessage', other: 'naive stack with Redis', atMost: 0.6 },
  ],
};
