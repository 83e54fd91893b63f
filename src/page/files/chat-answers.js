import { addAnswer } from './chat-answer.js';
import { scrollToEnd } from './chat-tools.js';

/**
 * The answers to what this page sends. `ready` resolves with the conversation at the relay when something may be sent;
 * `onChange` is called when an answer begins or ends.
 */
export function shownAnswers({ list, bot, session, ready, onChange }) {
  const running = new Set();
  /** Makes the function that shows the events of one answer. */
  const eventsOf = (answer) => eventReader(answer, (calls) => askConsent(answer, calls, { session, show }));

  /** Shows the answer to what `begin` sends. */
  async function show(begin, onAgain) {
    const answer = addAnswer(list, bot, { onAgain });
    const controller = new AbortController();
    const { signal } = controller;
    running.add(controller);
    onChange();
    scrollToEnd();
    let begun = false;
    let stream;
    const onState = (state) => {
      if (state === 'streaming') answer.streaming();
      if (state === 'waiting' && begun) answer.waitingAgain();
      begun = true;
    };
    try {
      // With an aborted signal it sends nothing.
      stream = begin(await ready(signal), { signal, onState });
      const onEvent = eventsOf(answer);
      for await (const event of stream) onEvent(event);
      answer.done();
    } catch (error) {
      if (signal.aborted) answer.stopped();
      else answer.failed(error, error.requestId ?? stream?.requestId);
      // The event `signed-out` is not used, since each bot's client knows only the sessions of its own answers.
      if (error.status === 401) session.ended();
    } finally {
      running.delete(controller);
      onChange();
    }
  }
  return {
    show,
    eventsOf,
    running: () => running.size,
    /** Follows no answer any more. The runs go on. */
    abort() {
      for (const controller of running) controller.abort();
    },
  };
}

/** Makes the function that shows the events of one answer. It throws if the run has failed. */
function eventReader(answer, onConsent) {
  /** The messages of this answer that are complete. */
  let complete = '';
  return ({ known, eventType, fact }) => {
    // The bot service says with this event that the run has failed.
    if (eventType === 'asgard.run.error')
      throw new Error(known ? fact.runError.error.message : 'The bot has failed.');
    if (!known) return;
    const { messageStart, messageDelta, messageComplete, toolCallConsent } = fact;
    const before = complete && `${complete}\n\n`;
    if (messageStart) answer.write({ whole: before });
    if (messageDelta) answer.write({ add: messageDelta.message.text });
    if (messageComplete) {
      complete = before + messageComplete.message.text;
      answer.write({ whole: complete });
    }
    if (toolCallConsent) onConsent(toolCallConsent.pendingCalls);
  };
}

function askConsent(answer, calls, { session, show }) {
  answer.ask(
    calls.map(({ toolName }) => toolName),
    (result) => {
      if (!session.isSignedIn()) return session.askToSignIn();
      const consents = calls.map(({ toolCallId }) => ({ toolCallId, result }));
      show((conversation, options) => conversation.consent(consents, options));
      return true;
    },
  );
}
