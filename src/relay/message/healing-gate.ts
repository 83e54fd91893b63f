/** For how long after a good resumption any number of streams of the bot may be resumed at the same time, in ms. */
const PROVEN_MS = 60_000;
/** How long one resumption may keep the others waiting for its first event, in ms. */
const FIRST_EVENT_MS = 2_000;
/** How many bots are remembered: with a pattern on the allow-list, clients choose the names of bots. */
const MAX_BOTS = 1_000;

/** The right to resume one stream. */
export interface GatePass {
  /** The resumption is sent: from now on it keeps others waiting for at most `FIRST_EVENT_MS`. */
  sent(): void;
  /** The resumption is over, or its first event has come. May be called again. */
  leave(): void;
}

/**
 * Keeps a service that has lost its runs from starting many new ones: as long as no resumption at a bot has shown that
 * runs go on there, one stream of the bot is resumed at a time. One gate for each process.
 */
export interface HealingGate {
  /**
   * False once the bot service has begun a new run where this bot's run was resumed. That is never forgotten: if there is
   * no room for one more bot, its streams are not healed.
   */
  mayHeal(bot: string): boolean;
  /** Waits until a stream of the bot may be resumed. Rejects with the signal's reason if that aborts first. */
  enter(bot: string, signal: AbortSignal): Promise<GatePass>;
  /** A resumed stream has shown that its run goes on. */
  proven(bot: string): void;
  /** Heals no stream of the bot any more; `enter` lets all through, which then find `mayHeal` false. */
  forbid(bot: string): void;
}

interface BotState {
  provenUntil: number;
  forbidden: boolean;
  /** Whether one resumption keeps the others waiting. */
  busy: boolean;
  /** The resumptions that wait, in their order. */
  readonly waiting: Set<() => void>;
}

/** The pass while the gate is open: it keeps nobody waiting. */
const OPEN: GatePass = { sent() {}, leave() {} };

const newState = (forbidden = false): BotState => ({
  provenUntil: 0,
  forbidden,
  busy: false,
  waiting: new Set(),
});
/** The state of all bots for which there is no room. */
const NO_ROOM = newState(true);

/** Makes a gate; `now` is in ms. */
export function healingGate(now: () => number = () => performance.now()): HealingGate {
  // In the order of their first resumption.
  const bots = new Map<string, BotState>();
  const isOpen = ({ forbidden, provenUntil }: BotState) => forbidden || now() < provenUntil;
  function stateOf(bot: string): BotState {
    const known = bots.get(bot);
    if (known) return known;
    if (bots.size >= MAX_BOTS) {
      const idle = idleBot(bots);
      if (idle === undefined) return NO_ROOM;
      bots.delete(idle);
    }
    const state = newState();
    bots.set(bot, state);
    return state;
  }

  return {
    mayHeal(bot) {
      const known = bots.get(bot);
      return known ? !known.forbidden : bots.size < MAX_BOTS || idleBot(bots) !== undefined;
    },
    async enter(bot, signal) {
      const state = stateOf(bot);
      while (state.busy && !isOpen(state)) await nextCall(state.waiting, signal);
      if (isOpen(state)) return OPEN;
      const pass = takePass(state);
      // It was aborted after it was called: the next one must be called in its place.
      if (signal.aborted) pass.leave();
      signal.throwIfAborted();
      return pass;
    },
    proven(bot) {
      const state = stateOf(bot);
      state.provenUntil = now() + PROVEN_MS;
      callAll(state);
    },
    forbid(bot) {
      const state = bots.get(bot) ?? newState();
      // Also over `MAX_BOTS`: there are no more such bots than resumptions under way.
      bots.set(bot, state);
      state.forbidden = true;
      callAll(state);
    },
  };
}

/** A bot that may be forgotten: it has no resumption under way. At worst, its next ones have to wait. */
function idleBot(bots: ReadonlyMap<string, BotState>): string | undefined {
  for (const [bot, { forbidden, busy, waiting }] of bots) {
    if (!forbidden && !busy && waiting.size === 0) return bot;
  }
  return undefined;
}

function takePass(state: BotState): GatePass {
  let timer: NodeJS.Timeout | undefined;
  let left = false;
  state.busy = true;
  const leave = () => {
    if (left) return;
    left = true;
    clearTimeout(timer);
    state.busy = false;
    const [next] = state.waiting;
    next?.();
  };
  return {
    sent() {
      if (!left) timer ??= setTimeout(leave, FIRST_EVENT_MS).unref();
    },
    leave,
  };
}

function callAll({ waiting }: BotState): void {
  for (const call of [...waiting]) call();
}

/** Waits in `waiting` until it is called. Rejects with the signal's reason if that aborts first. */
function nextCall(waiting: Set<() => void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      waiting.delete(call);
      signal.removeEventListener('abort', abort);
    };
    const call = () => {
      leave();
      resolve();
    };
    const abort = () => {
      leave();
      reject(signal.reason);
    };
    if (signal.aborted) return abort();
    waiting.add(call);
    signal.addEventListener('abort', abort);
  });
}
