import { followHistory } from './bot-relay-history.js';
import { addAnswer } from './chat-answer.js';
import { addNotLoaded, addQuestion } from './chat-messages.js';
import { scrollToEnd } from './chat-tools.js';

/**
 * What was said before in a conversation. `eventsOf` makes the function that shows the events of one answer; `onChange`
 * is called when an answer begins or ends.
 */
export function shownHistory({ list, bot, eventsOf, onChange }) {
  let history;
  const onAnswer = () => {
    const answer = addAnswer(list, bot, { isPast: true });
    const { streaming, done, stopped } = answer;
    const enter = { streaming, done, stopped };
    return {
      onEvent: eventsOf(answer),
      onState(state) {
        enter[state]();
        onChange();
      },
      onError: (error) => answer.failed(error, error.requestId),
    };
  };
  /**
   * Shows what was said, except the runs that `resumed` shows. The relay is asked whether there is something; nothing
   * is sent to the bot.
   */
  function begin(opened, resumed) {
    history = followHistory(opened.conversation, {
      resumed,
      onQuestion: (text, blobIds) =>
        addQuestion(list, text, { files: blobIds.map((blobId) => fileOf(opened, blobId)), isPast: true }),
      onAnswer,
      onError(error) {
        if (error.status === 401) return;
        addNotLoaded(list, error, () => {
          list.replaceChildren();
          begin(opened);
        });
      },
    });
    history.settled.then(() => {
      onChange();
      if (list.isConnected) scrollToEnd();
    });
  }
  return {
    begin,
    followed: () => history,
    isRunning: () => history?.isRunning() === true,
    readyToSend: (signal) => history?.readyToSend(signal),
    leave() {
      history?.leave();
      history = undefined;
    },
  };
}

/**
 * The name of a file, and the address to download it. A file has no address of its own if another one has its name.
 * `opened` is the conversation, and what the browser keeps of it.
 */
export function fileOf({ conversation, stored }, blobId) {
  const name = stored.nameOf(blobId);
  const hasLink = name !== undefined && !stored.isTwice(name);
  return { name, url: hasLink ? conversation.downloadUrl(name) : undefined };
}
