import type { UnsentStore } from './unsent-store.ts';

/** The unsent messages of one instance. Its callers take out what they enter, so that nothing has to expire. */
export function memoryUnsent(): UnsentStore {
  /** Tickets by conversation. */
  const waiting = new Map<string, Set<string>>();
  /** Tickets that `stop` has named. */
  const stopped = new Set<string>();
  let tell = (_conversation: string) => {};

  return {
    async enter(conversation, ticket) {
      const tickets = waiting.get(conversation) ?? new Set();
      waiting.set(conversation, tickets.add(ticket));
    },
    async leave(conversation, ticket) {
      const tickets = waiting.get(conversation);
      if (!tickets?.delete(ticket)) return !stopped.delete(ticket);
      if (tickets.size === 0) waiting.delete(conversation);
      return true;
    },
    async stop(conversation) {
      const tickets = waiting.get(conversation) ?? new Set();
      waiting.delete(conversation);
      for (const ticket of tickets) stopped.add(ticket);
      tell(conversation);
      return tickets.size;
    },
    listen(listener) {
      tell = listener;
    },
  };
}
