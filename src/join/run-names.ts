import type { EndedRun } from './ended-run.ts';
import type { Aged } from './in-order-of-age.ts';
import type { Run } from './run.ts';
import type { RunName } from './run-name.ts';

/** What is known of one name. */
export interface NamedRun extends Aged<NamedRun> {
  readonly name: RunName;
  /** Undefined while nobody reads it after its end, and once nothing but the name is remembered. */
  run: Run | undefined;
  /** What is kept of it after its end; it stays while the run is read again. */
  ended: EndedRun | undefined;
  /** Until when it is kept or remembered, by `performance.now()` in ms; infinity while it lives. */
  expiresAt: number;
  /** Whether the name still stands for this run. */
  isNamed: boolean;
}

/** All names, so that those of one conversation can be forgotten together. */
export interface RunNames {
  find(name: RunName): NamedRun | undefined;
  /** The newest run of a message id, whatever its body; undefined if that is not there any more. */
  newest(message: string): NamedRun | undefined;
  /** Adds the name of a run that lives. */
  add(name: RunName, run: Run): NamedRun;
  /** Forgets a name. May be called again. */
  delete(named: NamedRun): void;
  /** The name stays, but its run is not the newest of its message id any more. */
  retire(named: NamedRun): void;
  /** Forgets all names of a conversation except one; returns them. */
  deleteConversation(conversation: string, except?: NamedRun): readonly NamedRun[];
  count(): number;
}

/** Most conversations have one name: a set for each would take more memory than the name. */
type OneOrMore = NamedRun | Set<NamedRun>;

function namedRun(name: RunName, run: Run): NamedRun {
  return {
    name,
    run,
    ended: undefined,
    expiresAt: Number.POSITIVE_INFINITY,
    isNamed: true,
    order: undefined,
    older: undefined,
    newer: undefined,
  };
}

/** Makes the collection, which is empty. */
export function runNames(): RunNames {
  const all = new Map<string, NamedRun>();
  const newest = new Map<string, NamedRun>();
  const conversations = new Map<string, OneOrMore>();

  function retire(named: NamedRun): void {
    if (newest.get(named.name.message) === named) newest.delete(named.name.message);
  }

  function remove(named: NamedRun): void {
    const { conversation, key } = named.name;
    if (!named.isNamed) return;
    named.isNamed = false;
    all.delete(key);
    retire(named);
    const others = conversations.get(conversation);
    if (others instanceof Set) others.delete(named);
    if (others === named || (others instanceof Set && others.size === 0)) conversations.delete(conversation);
  }

  return {
    find: ({ key }) => all.get(key),
    newest: (message) => newest.get(message),
    add(name, run) {
      const { conversation, message, key } = name;
      const named = namedRun(name, run);
      const old = all.get(key);
      if (old) remove(old);
      all.set(key, named);
      newest.set(message, named);
      const others = conversations.get(conversation);
      if (others instanceof Set) others.add(named);
      else conversations.set(conversation, others ? new Set([others, named]) : named);
      return named;
    },
    delete: remove,
    retire,
    deleteConversation(conversation, except) {
      const found = conversations.get(conversation);
      const forgotten = found instanceof Set ? [...found] : found ? [found] : [];
      const others = forgotten.filter((one) => one !== except);
      for (const named of others) remove(named);
      return others;
    },
    count: () => all.size,
  };
}
