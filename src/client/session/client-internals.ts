import type { BotCalls, BotSettings } from './bot-calls.ts';
import type { SessionTracker, Tabs } from './session-tracker.ts';

/** What a client has besides its public functions. Channels and transports work with it. */
export interface ClientInternals {
  readonly options: BotSettings;
  readonly calls: BotCalls;
  readonly tracker: SessionTracker;
  readonly tabs: Tabs;
}

const internals = new WeakMap<object, ClientInternals>();

/** Keeps the internals of a client. */
export function setInternals(client: object, own: ClientInternals): void {
  internals.set(client, own);
}

/** The internals of a client. @throws TypeError if it was not made by this package */
export function internalsOf(client: object): ClientInternals {
  const own = internals.get(client);
  if (!own) throw new TypeError('This is no client of this package.');
  return own;
}

/** The value that `values` has for this client. If there is none yet, `make` makes it. */
export function ofClient<T>(values: WeakMap<object, T>, client: object, make: () => T): T {
  const value = values.get(client) ?? make();
  values.set(client, value);
  return value;
}
