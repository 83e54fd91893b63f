/** Variables that had another name, and what became of them. */
const RENAMED = {
  MAX_STREAMS_PER_SESSION:
    'is now MAX_STREAMS_PER_USER, which counts the messages of a user in all sessions together: set that in its place',
};

/** What is wrong with an environment that was made for the version before, in plain words. */
export function renamedVariables(environment: Readonly<Record<string, string | undefined>>): string[] {
  return Object.entries(RENAMED).flatMap(([name, what]) => (environment[name] ? [`${name} ${what}`] : []));
}
