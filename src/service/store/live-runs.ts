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
export type LiveRuns = ReturnType<typeof liveRuns>;

/** No runs yet. */
export function liveRuns() {
  const live = new Map<Run, ChannelName>();
  const ended = boundedMap<Run>({ maxEntries: MAX_ENDED, maxAgeMs: MAX_ENDED_AGE_MS });
  const keyOf = ({ key }: ChannelName, runId: string) => `${key} ${runId}`;
  /** Stops the runs that are meant; returns whether there was one. */
  const stop = (isMeant: (channel: ChannelName, run: Run) => boolean, reason = SUSPENDED) => {
    const meant = [...live].filter(([run, channel]) => isMeant(channel, run));
    for (const [run] of meant) run.stop.abort(reason);
    return meant.length > 0;
  };
  const ofChannel = (channel: ChannelName) => {
    const all = () => [...live].flatMap(([run, { key }]) => (key === channel.key ? [run] : []));
    return {
      /** Those that are under way. */
      all,
      /** One that is under way, or is over since a short time. */
      find: (id: string) => all().find((run) => run.id === id) ?? ended.get(keyOf(channel, id)),
      add: (run: Run) => void live.set(run, channel),
      /** Takes note that a run is over. */
      end(run: Run) {
        live.delete(run);
        ended.set(keyOf(channel, run.id), run);
      },
      /** Stops those that are under way, or the one with this id; returns whether there was one. */
      suspend: (runId?: string) => stop(({ key }, { id }) => key === channel.key && (runId ?? id) === id),
    };
  };
  return { stop, ofChannel };
}
