import type { BotCalls, BotClientOptions } from './bot-calls.ts';
import type { SessionTracker, Tabs } from './session-tracker.ts';

/** What a client is made of. */
export interface ClientParts {
  readonly options: BotClientOptions;
  readonly calls: BotCalls;
  readonly tracker: SessionTracker;
  readonly tabs: Tabs;
}

const parts = new WeakMap<object, ClientParts>();

/** Notes the parts of a client. */
export function setParts(client: object, its: ClientParts): void {
  parts.set(client, its);
}

/** The parts of a client. @throws TypeError if it is none of this package */
export function partsOf(client: object): ClientParts {
  const its = parts.get(client);
  if (!its) throw new TypeError('This is no client of this package.');
  return its;
}

/** What `all` has for this client, or what `make` makes for it. */
export function ofClient<T>(all: WeakMap<object, T>, client: object, make: () => T): T {
  const its = all.get(client) ?? make();
  all.set(client, its);
  return its;
}
