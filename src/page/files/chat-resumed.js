import { resumedAnswers } from './bot-relay-resumed.js';
import { addAnswer } from './chat-answer.js';

/**
 * The answers that had not ended when the page was left. `eventsOf` makes the function that shows the events of one
 * answer; `onChange` is called when an answer begins or ends.
 */
export function shownResumed({ list, bot, eventsOf, onChange, session }) {
  let resumed;
  const onError = ({ status }) => status === 401 && session.ended();
  const onAnswer = () => {
    const answer = addAnswer(list, bot);
    const { streaming, waitingAgain: waiting, done, stopped } = answer;
    const enter = { streaming, waiting, done, stopped };
    return {
      onEvent: eventsOf(answer),
      onState(state) {
        enter[state]();
        onChange();
      },
      onError(error) {
        answer.failed(error, error.requestId);
        onChange();
        onError(error);
      },
    };
  };
  return {
    /** Goes on with them, and returns them. `history` returns what was said before, if that is shown. */
    begin({ conversation }, history) {
      resumed = resumedAnswers(conversation, { onAnswer, onError, history });
      return resumed;
    },
    isRunning: () => resumed?.isRunning() === true,
    leave() {
      resumed?.leave();
      resumed = undefined;
    },
  };
}
