import { createBotClient } from './bot-relay-client.js';
import { addAnswer, addQuestion, keptMessages, restoreMessages } from './chat-messages.js';
import { keepSession } from './chat-session.js';
import { byId, setText, toEnd } from './chat-tools.js';

/** A conversation that waits until its user is back from the provider's page. */
const KEPT = 'bot-relay-conversation';

/** The page's folder is the relay's base path, whatever stands before the relay. */
const folder = new URL('.', import.meta.url).pathname.replace(/\/$/, '');
const bots = (document.body.dataset.bots || 'demo/echo').split(' ');
let clients = newClients();
const running = new Set();
const text = byId('text');
let bot = bots[0];

const session = keepSession({
  client: clientOf(bot),
  folder,
  onUser: forget,
  onLeave: (user) =>
    sessionStorage.setItem(KEPT, JSON.stringify({ user, messages: keptMessages(), draft: text.value })),
});

function newClients() {
  return new Map(bots.map((name) => [name, clientOf(name)]));
}

function clientOf(name) {
  const [namespace, botProviderName] = name.split('/');
  return createBotClient({ baseUrl: folder, namespace, botProviderName });
}

/** What one user has said is nothing for the next one. */
function forget() {
  for (const abort of running) abort.abort();
  // Nor does the next one go on in their channels at the bots.
  clients = newClients();
  for (const id of ['messages', 'live']) byId(id).replaceChildren();
  text.value = '';
  showState();
}

/** Sends a message to a bot and shows what comes of it. */
async function send(message, name) {
  const client = clients.get(name);
  addQuestion(message);
  const answer = addAnswer(name, () => {
    if (!session.isSignedIn()) return session.askToSignIn();
    send(message, name);
    return true;
  });
  const abort = new AbortController();
  running.add(abort);
  showState();
  toEnd();
  let begun = false;
  const stream = client.send(message, {
    signal: abort.signal,
    onState(state) {
      if (state === 'streaming') answer.streaming();
      if (state === 'waiting' && begun) answer.waitingAgain();
      begun = true;
    },
  });
  try {
    for await (const { data } of stream) {
      const { messageDelta, messageComplete, runError } = data?.fact ?? {};
      // The bot service's own way to say that the run has failed.
      if (runError) throw new Error(runError.error?.message ?? 'The bot has failed.');
      if (messageDelta) answer.write({ add: messageDelta.message?.text ?? '' });
      if (messageComplete) answer.write({ whole: messageComplete.message?.text ?? '' });
    }
    answer.done();
  } catch (error) {
    if (abort.signal.aborted) answer.stopped();
    else answer.failed(error, error.requestId ?? stream.requestId);
    // Not by `signed-out`: each bot's client knows of its own answers only, not of who signs in by another.
    if (error.status === 401) session.ended();
  } finally {
    running.delete(abort);
    showState();
  }
}

/** Shows what can be done now. */
function showState() {
  const stop = byId('stop');
  // A button that goes away takes the focus with it.
  if (running.size === 0 && document.activeElement === stop) text.focus();
  stop.hidden = running.size === 0;
  setText(stop, running.size > 1 ? 'Stop all' : 'Stop');
  byId('empty').hidden = byId('messages').childElementCount > 0;
}

/** As high as what is written in it, up to what the style sheet allows. */
function fitText() {
  text.style.height = 'auto';
  text.style.height = `${text.scrollHeight + 2}px`;
}

byId('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  const message = text.value;
  if (message.trim() === '') return text.focus();
  if (!session.isSignedIn()) return session.askToSignIn();
  text.value = '';
  fitText();
  text.focus();
  send(message, bot);
});
text.addEventListener('input', fitText);
text.addEventListener('keydown', (event) => {
  // The Enter that ends the composition of a character is none of ours.
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  byId('composer').requestSubmit();
});
byId('stop').addEventListener('click', () => {
  for (const abort of running) abort.abort();
});
byId('bot').addEventListener('change', ({ target }) => {
  bot = target.value;
});

byId('bot-name').textContent = bot;
byId('bot-name').hidden = bots.length > 1;
byId('bot').hidden = bots.length === 1;
byId('bot').replaceChildren(...bots.map((name) => new Option(name)));
const { user, messages = [], draft = '' } = JSON.parse(sessionStorage.getItem(KEPT) ?? '{}');
sessionStorage.removeItem(KEPT);
restoreMessages(messages);
text.value = draft;
fitText();
showState();
if (messages.length > 0) toEnd();
session.start(user);
