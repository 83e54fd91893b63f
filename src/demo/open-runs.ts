/** Why a run ends that somebody has stopped. */
export const SUSPENDED = Symbol('suspended');

/** What names a run: the bot's endpoint, the channel it belongs to, and its own id. */
export interface RunName {
  readonly endpoint: string;
  readonly channelId: string;
  readonly runId: string;
}

/** The runs that are under way. */
export interface OpenRuns {
  /** Adds a run until `remove` is called with the same `stop`. */
  add(name: RunName, stop: AbortController): void;
  remove(stop: AbortController): void;
  /** Ends the runs of a channel, or the one of them with this id; returns whether there was one. */
  suspend(name: Omit<RunName, 'runId'> & { readonly runId: string | undefined }): boolean;
}

export function openRuns(): OpenRuns {
  const open = new Map<AbortController, RunName>();
  return {
    add: (name, stop) => void open.set(stop, name),
    remove: (stop) => void open.delete(stop),
    suspend({ endpoint, channelId, runId }) {
      const meant = [...open].filter(
        ([, run]) =>
          run.endpoint === endpoint &&
          run.channelId === channelId &&
          (runId === undefined || run.runId === runId),
      );
      for (const [stop] of meant) stop.abort(SUSPENDED);
      return meant.length > 0;
    },
  };
}
