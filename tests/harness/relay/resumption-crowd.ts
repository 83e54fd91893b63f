import { abortableSleep } from '../../../src/pace/abortable-sleep.ts';
import type { EndpointBudgets } from '../../../src/pace/budgets.ts';
import { resumptionTurns, type TakeResumptionTurn } from '../../../src/pace/resumption-turns.ts';
import { type PacedRate, type SlotWaits, slotWaits } from '../../../src/pace/slot-waits.ts';
import { range } from './numbered-messages.ts';

const RESUMPTIONS = 300;
export const NEW_MESSAGES = 20;
const USERS = 20;

export interface Crowd {
  /** The budgets as each instance at which new messages arrive knows them. */
  readonly instances: readonly EndpointBudgets[];
  /** The instances of the streams that break; by default all. */
  readonly resuming?: readonly EndpointBudgets[];
  readonly rate: PacedRate;
  /** How many users send the new messages; each of them has resumptions, too. */
  readonly newUsers: number;
  readonly endpoint?: string;
}

export interface CrowdResult {
  readonly refused: number;
  /** When the last of the new messages started, in ms after they arrived. */
  readonly lastNewMs: number;
  /** How many of each kind started while new messages waited. */
  readonly resumptions: number;
  readonly messages: number;
}

/**
 * 300 streams of 20 users break at once and wait for their resumptions; in the middle of the third window, 20 new
 * messages arrive.
 */
export async function startCrowd(crowd: Crowd): Promise<CrowdResult> {
  const { instances, resuming = instances, rate, newUsers, endpoint = 'acme/helper' } = crowd;
  const stop = new AbortController();
  /** What started, and when. */
  const started: { readonly kind: 'resumption' | 'new'; readonly at: number }[] = [];
  const turns = resuming.map((budgets) => resumptionTurns(budgets, rate));
  const resumed = range(RESUMPTIONS).map(async (n) => {
    const takeTurn = turns[n % turns.length] as TakeResumptionTurn;
    await takeTurn({ endpoint, holders: { user: `user-${n % USERS}` } }, stop.signal);
    started.push({ kind: 'resumption', at: performance.now() });
  });
  const all = Promise.allSettled(resumed);
  await abortableSleep(2.5 * rate.windowMs, stop.signal);
  const arrivedAt = performance.now();
  const waits = instances.map((budgets) => slotWaits(budgets, rate));
  const slots = await Promise.all(
    range(NEW_MESSAGES).map(async (n) => {
      const request = { endpoint, holders: [`user-${n % newUsers}`] };
      const { slot } = await (waits[n % waits.length] as SlotWaits).take(request, stop.signal);
      if (slot) started.push({ kind: 'new', at: performance.now() });
      return slot;
    }),
  );
  const lastNewMs = performance.now() - arrivedAt;
  stop.abort('over');
  await all;
  const since = started.filter(({ at }) => at >= arrivedAt);
  const resumptions = since.filter(({ kind }) => kind === 'resumption').length;
  const refused = slots.filter((slot) => !slot).length;
  return { refused, lastNewMs, resumptions, messages: since.length - resumptions };
}

/**
 * Counts the resumptions that start in `windows` windows where nobody else waits, and, beside them at another endpoint,
 * the messages that do: a busy machine delays both. `ms` is how long that took.
 */
export async function startApart(instances: readonly EndpointBudgets[], rate: PacedRate, windows: number) {
  const stop = new AbortController();
  const started = { resumptions: 0, messages: 0 };
  const turns = instances.map((budgets) => resumptionTurns(budgets, rate));
  const waits = instances.map((budgets) => slotWaits(budgets, rate));
  const all = range(RESUMPTIONS).flatMap((n) => {
    const user = `user-${n % USERS}`;
    const takeTurn = turns[n % turns.length] as TakeResumptionTurn;
    const { take } = waits[n % waits.length] as SlotWaits;
    const sendMessage = async () => {
      const { slot } = await take({ endpoint: 'acme/new', holders: [user] }, stop.signal);
      if (slot) started.messages++;
    };
    return [
      takeTurn({ endpoint: 'acme/broken', holders: { user } }, stop.signal).then(() => started.resumptions++),
      sendMessage(),
    ];
  });
  const ended = Promise.allSettled(all);
  const from = performance.now();
  await abortableSleep(windows * rate.windowMs, stop.signal);
  const inTime = { ...started, ms: performance.now() - from };
  stop.abort('over');
  await ended;
  return inTime;
}
