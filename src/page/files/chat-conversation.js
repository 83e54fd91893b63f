import { botConversation } from './bot-relay-conversation.js';
import { shownAnswers } from './chat-answers.js';
import { fileOf, shownHistory } from './chat-history.js';
import { addQuestion, removeLinks } from './chat-messages.js';
import { shownResumed } from './chat-resumed.js';
import { storedConversation } from './chat-store.js';
import { fromTemplate } from './chat-tools.js';

/** The groups of operations that the relay has enabled. */
const operations = (document.body.dataset.operations || '').split(' ');
export const hasChat = operations.includes('chat');
export const hasFiles = operations.includes('files');

/**
 * A user's conversation with one bot, as the page shows it. `client` is the bot's client, `folder` the page's path,
 * `session` the page's session. `onChange` is called when a message begins or ends.
 */
export function shownConversation(bot, { client, folder, session, onChange }) {
  const list = fromTemplate('conversation');
  let openedFor;
  /** A promise of `opened`. */
  let opening;
  /** The conversation at the relay, and what the browser keeps of it. */
  let opened;
  async function ready(signal) {
    const { conversation } = await opening;
    await history.readyToSend(signal);
    return conversation;
  }
  const answers = shownAnswers({ list, bot, session, ready, onChange });
  const { eventsOf } = answers;
  const history = shownHistory({ list, bot, eventsOf, onChange });
  const resumed = shownResumed({ list, bot, eventsOf, onChange, session });
  async function openFor(user) {
    const stored = await storedConversation(folder, user, bot);
    opened = { conversation: botConversation(client, stored.id), stored };
    if (list.childElementCount > 0) return opened;
    const begun = resumed.begin(opened, history.followed);
    if (hasChat) history.begin(opened, begun);
    return opened;
  }
  function send(text, blobIds = []) {
    addQuestion(list, text, { files: blobIds.map((blobId) => fileOf(opened, blobId)) });
    const message = blobIds.length > 0 ? { text, blobIds } : text;
    answers.show(
      (to, options) => to.send(message, options),
      () => (session.isSignedIn() ? send(text, blobIds) : session.askToSignIn()),
    );
    return true;
  }
  return {
    list,
    running: () => answers.running() + [history, resumed].filter((one) => one.isRunning()).length,
    /** Opens the conversation of this user. What was said before is shown if the list is empty. */
    open(user) {
      if (user === openedFor) return;
      openedFor = user;
      history.leave();
      resumed.leave();
      opening = openFor(user);
    },
    /** Sends a message with files, which were uploaded here, and shows its answer. */
    send,
    ...operationsOf({ list, answers, history, resumed, session, onChange, opening: () => opening }),
  };
}

/** What else a page does with a conversation. */
function operationsOf({ list, answers, history, resumed, session, onChange, opening }) {
  /** Follows no answer any more. The runs go on. */
  function leave() {
    answers.abort();
    history.leave();
    resumed.leave();
  }
  return {
    leave,
    /** Stops all runs at the bot service. */
    async stop() {
      answers.abort();
      resumed.leave();
      // What was said is still shown if it comes later.
      if (history.isRunning()) history.leave();
      onChange();
      if (hasChat) await (await opening()).conversation.stop().catch(unlessNew);
    },
    /** Forgets what was said, here and at the bot service. */
    async clear() {
      const { conversation } = await opening();
      await conversation.reset().catch(unlessNew);
      leave();
      list.replaceChildren();
      onChange();
    },
    /** Uploads a file; resolves with its id. */
    async upload(file, signal) {
      const { conversation, stored } = await opening();
      const blobId = await conversation.upload(file, { signal });
      // The names of a user who has signed out meanwhile are not kept.
      if (session.isSignedIn()) stored.addFile(blobId, file.name);
      if (stored.isTwice(file.name)) removeLinks(list, file.name);
      return blobId;
    },
  };
}

/** With `CHANNELS=owned`, a conversation that nobody has begun yet belongs to nobody. */
function unlessNew(error) {
  if (error.code !== 'not_your_conversation') throw error;
}
