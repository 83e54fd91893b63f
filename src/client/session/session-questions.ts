import { asRelayError } from '../transport/as-relay-error.ts';
import { inBackground } from '../transport/in-background.ts';
import type { RelayError } from '../transport/relay-error.ts';
import { isTemporary } from '../transport/resumption.ts';
import type { BotClient } from './bot-client.ts';
import type { Session } from './session-tracker.ts';

/** Pauses between the tries of a question, in ms. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
const MAX_TRIES = 10;

type Timer = ReturnType<typeof setTimeout> | undefined;

/** Asks who is signed in, and again with pauses while the relay cannot say so. */
export function sessionQuestions(client: Pick<BotClient, 'session'>, onError: (error: RelayError) => void) {
  let isOn = false;
  let next: Timer;
  let atEnd: Timer;
  let session: Session | null | undefined;
  async function ask(tries: number): Promise<void> {
    try {
      await client.session();
    } catch (thrown) {
      const error = asRelayError(thrown);
      onError(error);
      if (!isOn) return;
      if (!isTemporary(error) || tries >= MAX_TRIES) return awaitEnd(session);
      const pauseMs = Math.max(FIRST_PAUSE_MS * 2 ** tries, (error.retryAfter ?? 0) * 1000);
      clearTimeout(next);
      next = inBackground(() => void ask(tries + 1), Math.min(pauseMs, LONGEST_PAUSE_MS));
    }
  }
  /** Asks when this session should have ended: a tab that stays visible would not notice. */
  function awaitEnd(its: Session | null | undefined): void {
    session = its;
    clearTimeout(atEnd);
    const end = Date.parse(`${its?.idleExpiresAt}`);
    if (!isOn || Number.isNaN(end)) return;
    // A second later, since clocks differ a little. If they differ much, the relay is not asked all the time.
    const restMs = Math.max(end + 1_000 - Date.now(), LONGEST_PAUSE_MS);
    // A hidden tab asks when it is visible again.
    const act = () => void (globalThis.document?.hidden || ask(0));
    // A longer timer than 2 ** 31 - 1 ms would fire at once.
    atEnd = inBackground(act, Math.min(restMs, 2e9));
  }
  return {
    begin() {
      isOn = true;
      clearTimeout(next);
      next = setTimeout(ask, 0, 0);
    },
    awaitEnd,
    end() {
      isOn = false;
      clearTimeout(next);
      clearTimeout(atEnd);
    },
  };
}
