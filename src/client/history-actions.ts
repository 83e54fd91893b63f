import { answerText, readFact } from './answer-text.ts';
import { asRelayError } from './as-relay-error.ts';
import type { ChatMessage } from './chat-state.ts';
import { type AnswerView, type FollowedHistory, followHistory } from './follow-history.ts';
import { questionOf, type ShownConversation } from './message-actions.ts';
import { type ResumedAnswers, resumedAnswers } from './resumed-answers.ts';

/** The part of a conversation that shows what was said before, and answers that had not ended when the page was left. */
export function historyActions({ current, state, textOf }: ShownConversation) {
  let history: FollowedHistory | undefined;
  let resumed: ResumedAnswers | undefined;
  const onError = (thrown: unknown) => state.change({ error: asRelayError(thrown) });
  /** Shows an answer that `add` adds. */
  const answerBy = (add: (message: ChatMessage) => void) => (): AnswerView => {
    let answer: ChatMessage = { id: state.newId(), from: 'bot', text: '', state: 'done' };
    add(answer);
    const change = (changes: Partial<ChatMessage>) => {
      answer = { ...answer, ...changes };
      state.replace(answer);
    };
    const textAfter = answerText();
    return {
      onEvent(event) {
        const said = textOf(event);
        if (said) change({ text: textAfter(said) });
      },
      onState: (now) => change({ state: now }),
      onError: (thrown) => change({ state: 'failed', error: asRelayError(thrown) }),
    };
  };
  return {
    /** Shows what was said in the current conversation, and follows the runs that are under way. */
    begin() {
      resumed = resumedAnswers(current(), {
        onAnswer: answerBy(state.add),
        onError,
        history: () => history,
      });
      history = followHistory(current(), {
        onQuestion: (text, blobIds) => state.addPast(questionOf(state.newId(), text, blobIds)),
        onAnswer: answerBy(state.addPast),
        onError,
        resumed,
        readsUnknown: textOf !== readFact,
      });
    },
    isRunning: () => resumed?.isRunning() === true || history?.isRunning() === true,
    /** Undefined if no history is followed. */
    readyToSend: (signal: AbortSignal) => history?.readyToSend(signal),
    leave() {
      resumed?.leave();
      history?.leave();
      resumed = history = undefined;
    },
  };
}
