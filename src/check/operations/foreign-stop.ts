import type { Answer } from '../through-client.ts';
import { apartness, unanswered } from './apartness.ts';
import type { Apartness, ForeignQuestion } from './group-probe.ts';
import { verdictOn } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';

const WHAT = 'its run to stop';

/** A try of the second user to stop a run of the first one. */
export interface ForeignStop {
  /** Tries it, as soon as the run is known. */
  readonly onRun: (requestId: string) => void;
  /** To be called when the stream of the run has ended. Resolves with how it went, if it was tried. */
  ended(): Promise<readonly ForeignQuestion[]>;
}

/**
 * The relay passes the id of a run on as it is: the bot service must see that it belongs to the conversation. A service
 * that answers 2xx has stopped something, and the second user has no run of their own.
 */
export function foreignStop(other: OperationSession | undefined): ForeignStop {
  let asked: Promise<{ readonly answer: Answer; readonly at: number } | Apartness> | undefined;
  return {
    onRun(requestId) {
      if (!other || asked) return;
      const request = { conversation: other.conversation.id, query: { request_id: requestId } };
      asked = other
        .call('POST message/suspend', request)
        .then((answer) => ({ answer, at: performance.now() }), unanswered);
    },
    async ended() {
      const endedAt = performance.now();
      if (!other || !asked) return [];
      const tried = await asked;
      if ('state' in tried) return [{ what: WHAT, ask: async () => tried }];
      const { answer, at } = tried;
      const verdict = verdictOn(answer);
      if (verdict === 'off') return [];
      const isTooLate = verdict === 'unknown' && at > endedAt;
      const result: Apartness = isTooLate
        ? { state: 'unclear', says: '404 after the run was over' }
        : apartness(answer);
      return [{ what: WHAT, ask: async () => result }];
    },
  };
}
