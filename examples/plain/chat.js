import { createBotClient, createChannel, textOf } from 'bot-relay-client';

const client = createBotClient({ bot: 'demo/echo' });
const channel = createChannel(client);
const signIn = /** @type {HTMLFormElement} */ (document.getElementById('sign-in'));
const chat = /** @type {HTMLFormElement} */ (document.getElementById('chat'));
const list = /** @type {HTMLElement} */ (document.getElementById('messages'));
const alert = /** @type {HTMLElement} */ (document.getElementById('error'));
/** @param {string} name */
const button = (name) => /** @type {HTMLButtonElement} */ (chat.elements.namedItem(name));
const [send, stop, leave] = [button('send'), button('stop'), button('leave')];

/**
 * The row of each message.
 * @type {Map<string, HTMLLIElement>}
 */
const rows = new Map();

/** @param {import('bot-relay-client').ChannelMessage} message */
function rowOf(message) {
  const row = rows.get(message.id) ?? document.createElement('li');
  rows.set(message.id, row);
  row.dataset.from = message.role;
  row.dataset.state = message.state;
  row.textContent = textOf(message);
  return row;
}

/** @param {import('bot-relay-client').RelayError | undefined} error */
function showError(error) {
  alert.hidden = !error;
  alert.textContent = error ? error.message : '';
  if (error?.requestId) alert.append(` Request: ${error.requestId}`);
}

channel.subscribe(() => {
  const { session, messages, status, error } = channel.getSnapshot();
  signIn.hidden = session !== null;
  chat.hidden = !session;
  const isBusy = status !== 'ready' && status !== 'error';
  send.disabled = isBusy;
  stop.disabled = !isBusy;
  list.replaceChildren(...messages.map(rowOf));
  showError(error);
});

signIn.onsubmit = async (event) => {
  event.preventDefault();
  const form = new FormData(signIn);
  signIn.reset();
  await client.signIn(`${form.get('name')}`, `${form.get('password')}`).catch(showError);
};
chat.onsubmit = (event) => {
  event.preventDefault();
  channel.send(`${new FormData(chat).get('text')}`);
  chat.reset();
};
stop.onclick = channel.stop;
leave.onclick = () => client.signOut().catch(showError);
