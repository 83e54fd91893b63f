import { boundedMap } from './bounded-map.ts';
import { type Run, SUSPENDED } from './run.ts';

/** Where a channel stands. */
export interface ChannelName {
  /** The number of its row, which no other channel ever gets. */
  readonly key: number;
  readonly projectId: string;
  /** Its bot, as `namespace/bot`. */
  readonly endpoint: string;
  /** What clients call it. */
  readonly id: string;
}

/** How many runs that are over can still be followed to the last word, and for how long. */
const MAX_ENDED = 200;
const MAX_ENDED_AGE_MS = 10 * 60 * 1000;

/** The runs that are under way, in memory, and some that are over. */
export interface LiveRuns {
  /** The runs of a channel that are under way. */
  of(channel: ChannelName): Run[];
  /** The run of a channel with this id, also if it is over since a short time. */
  find(channel: ChannelName, id: string): Run | undefined;
  add(channel: ChannelName, run: Run): void;
  /** Takes note that a run is over. */
  end(channel: ChannelName, run: Run): void;
  /** Stops the runs that are meant; returns whether there was one. */
  stop(isMeant: (channel: ChannelName, run: Run) => boolean, reason?: symbol): boolean;
}

/** No runs yet. */
export function liveRuns(): LiveRuns {
  const live = new Map<Run, ChannelName>();
  const ended = boundedMap<Run>({ maxEntries: MAX_ENDED, maxAgeMs: MAX_ENDED_AGE_MS });
  const keyOf = ({ key }: ChannelName, runId: string) => `${key} ${runId}`;
  const of = ({ key }: ChannelName) =>
    [...live].flatMap(([run, channel]) => (channel.key === key ? [run] : []));
  return {
    of,
    find: (channel, id) => of(channel).find((run) => run.id === id) ?? ended.get(keyOf(channel, id)),
    add: (channel, run) => void live.set(run, channel),
    end(channel, run) {
      live.delete(run);
      ended.set(keyOf(channel, run.id), run);
    },
    stop(isMeant, reason = SUSPENDED) {
      const meant = [...live].filter(([run, channel]) => isMeant(channel, run));
      for (const [run] of meant) run.stop.abort(reason);
      return meant.length > 0;
    },
  };
}
