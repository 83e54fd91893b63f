import { asRelayError } from './as-relay-error.ts';
import { NOTHING_THERE } from './follow-history.ts';
import { historyActions } from './history-actions.ts';
import { messageActions, type ShownConversation } from './message-actions.ts';
import type { SessionEffects } from './session-actions.ts';
import { uploadActions } from './upload-actions.ts';

/** What a page can do in a conversation; `hasHistory` if it shows what was said before. */
export function conversationActions(shown: ShownConversation, hasHistory: boolean) {
  const history = historyActions(shown);
  const messages = messageActions(shown, history.readyToSend);
  const uploads = uploadActions(shown);
  const { state } = shown;
  let isEnded = false;
  /** The page was left, and does not know what was said since. */
  let isOutdated = false;
  const effects: SessionEffects = {
    leave() {
      messages.abort();
      uploads.abort();
      history.leave();
    },
    onUser(isNew) {
      if (!hasHistory || isEnded || !(isNew || isOutdated)) return;
      // What the page still shows comes again.
      if (isOutdated) state.removeAll();
      isOutdated = false;
      history.begin();
    },
  };
  return {
    ...effects,
    async send(text: string, blobIds?: readonly string[]): Promise<void> {
      if (!isEnded) await messages.send(text, blobIds);
    },
    stop(): void {
      if (!messages.isRunning() && !history.isRunning()) return;
      messages.abort();
      // What was said is still shown if it comes later.
      if (history.isRunning()) history.leave();
      stopRuns(shown);
    },
    upload: uploads.upload,
    begin() {
      isEnded = false;
    },
    end() {
      isEnded = true;
      isOutdated = true;
      effects.leave();
    },
  };
}

/** Stops all runs of the conversation. */
function stopRuns({ current, state }: ShownConversation): void {
  current()
    .stop()
    .catch((thrown) => {
      const error = asRelayError(thrown);
      // Nothing ran, or the relay cannot stop runs.
      if (!NOTHING_THERE.includes(error.code)) state.change({ error });
    });
}
