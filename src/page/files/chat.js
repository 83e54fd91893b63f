import { createBotClient } from './bot-relay-client.js';
import { hasChat, hasFiles, shownConversation } from './chat-conversation.js';
import { attachedFiles } from './chat-files.js';
import { restoreMessages, savedMessages } from './chat-messages.js';
import { keepSession } from './chat-session.js';
import { announce, byId, scrollToEnd, setText } from './chat-tools.js';

/** The key in session storage of the conversation, while its user signs in at the provider. */
const SAVED = 'bot-relay-conversation';

/** The folder of the page is the relay's base path, also behind a proxy that changes paths. */
const folder = new URL('.', import.meta.url).pathname.replace(/\/$/, '');
const bots = (document.body.dataset.bots || 'demo/echo').split(' ');
const text = byId('text');
const saved = JSON.parse(sessionStorage.getItem(SAVED) ?? '{}');
sessionStorage.removeItem(SAVED);
let bot = bots.includes(saved.bot) ? saved.bot : bots[0];
let user;

const session = keepSession({
  client: clientOf(bot),
  folder,
  onUser: openFor,
  onLeave: (user) => {
    const messages = savedMessages(current().list);
    sessionStorage.setItem(SAVED, JSON.stringify({ user, bot, messages, draft: text.value }));
  },
});
let conversations = newConversations();
const current = () => conversations.get(bot);
const files = attachedFiles((file, signal) => current().upload(file, signal));

function newConversations() {
  return new Map(
    bots.map((name) => [
      name,
      shownConversation(name, { client: clientOf(name), folder, session, onChange: showState }),
    ]),
  );
}

function clientOf(name) {
  const [namespace, botProviderName] = name.split('/');
  return createBotClient({ baseUrl: folder, namespace, botProviderName });
}

/** Opens the conversations of a user. If another user was signed in, nothing of that user is left. */
function openFor(id, isOther) {
  user = id;
  if (isOther) {
    for (const { leave } of conversations.values()) leave();
    conversations = newConversations();
    byId('live').replaceChildren();
    text.value = '';
    fitText();
  }
  showConversation();
}

/** Shows the conversation with the chosen bot. */
function showConversation() {
  files.clear();
  setText(byId('composer-note'), '');
  byId('messages').replaceWith(current().list);
  if (user !== undefined) current().open(user);
  showState();
  if (current().list.childElementCount > 0) scrollToEnd();
}

/** Shows or hides the Stop button and the hint of an empty conversation. */
function showState() {
  const stop = byId('stop');
  const running = current().running();
  // A button that is hidden loses the focus.
  if (running === 0 && document.activeElement === stop) text.focus();
  stop.hidden = running === 0;
  setText(stop, running > 1 ? 'Stop all' : 'Stop');
  const isEmpty = current().list.childElementCount === 0;
  byId('empty').hidden = !isEmpty;
  if (isEmpty && document.activeElement === byId('clear')) text.focus();
  byId('clear').hidden = isEmpty || !hasChat;
}

/** Says what did not work, below the conversation. */
function complain(error, before) {
  if (error.status === 401) return session.ended();
  setText(byId('composer-note'), `${before} ${error.message}`);
  announce(byId('composer-note').textContent);
}

/** Makes the input as high as its text, up to the limit of the style sheet. */
function fitText() {
  text.style.height = 'auto';
  text.style.height = `${text.scrollHeight + 2}px`;
}

byId('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  const message = text.value;
  if (message.trim() === '' && files.isEmpty()) return text.focus();
  if (!session.isSignedIn()) return session.askToSignIn();
  if (files.isUploading()) return complain(new Error('A file is still being uploaded.'), 'Not sent yet.');
  setText(byId('composer-note'), '');
  text.value = '';
  fitText();
  text.focus();
  current().send(message, files.take());
});
text.addEventListener('input', fitText);
text.addEventListener('keydown', (event) => {
  // An Enter that ends the composition of a character does not send.
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  byId('composer').requestSubmit();
});
byId('stop').addEventListener('click', () => {
  current()
    .stop()
    .catch((error) => complain(error, 'The bot may still go on.'));
});
byId('clear').addEventListener('click', () => {
  if (!confirm('Clear this conversation? The bot forgets it, too.')) return;
  current()
    .clear()
    .catch((error) => complain(error, 'The conversation is not cleared.'));
});
byId('bot').addEventListener('change', ({ target }) => {
  bot = target.value;
  showConversation();
});

byId('attach').hidden = !hasFiles;
byId('bot-name').textContent = bot;
byId('bot-name').hidden = bots.length > 1;
byId('bot').hidden = bots.length === 1;
byId('bot').replaceChildren(...bots.map((name) => new Option(name)));
byId('bot').value = bot;
restoreMessages(current().list, saved.messages ?? []);
text.value = saved.draft ?? '';
showConversation();
fitText();
session.start(saved.user);
