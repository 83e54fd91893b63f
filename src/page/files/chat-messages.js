import {
  announce,
  byId,
  copyText,
  countSeconds,
  growing,
  inWords,
  nextFrame,
  setText,
} from './chat-tools.js';

const fromTemplate = (id) => byId(id).content.firstElementChild.cloneNode(true);

/** Adds a message of the user's. */
export function addQuestion(text) {
  const item = fromTemplate('question');
  item.querySelector('.text').textContent = text;
  byId('messages').append(item);
}

/**
 * Adds the place of an answer, which waits. `bot` is the bot's name, `onAgain` sends the question again, and returns
 * true if it did. What it
 * returns brings the answer forward; the last three end it.
 */
export function addAnswer(bot, onAgain) {
  const item = fromTemplate('answer');
  const part = (name) => item.querySelector(`.${name}`);
  let text = '';
  let asked = false;
  let stopCounting = countSeconds((seconds) => {
    setText(part('note'), `Waiting for the answer · ${inWords(seconds)}`);
  });
  part('name').textContent = bot;
  byId('messages').append(item);

  const draw = () => growing(() => setText(part('text'), text));
  /** Enters a state, with a sentence about it. */
  function enter(state, note) {
    stopCounting();
    growing(() => {
      item.dataset.state = state;
      setText(part('text'), text);
      setText(part('note'), note);
    });
  }
  return {
    element: item,
    /** The answer begins, or goes on. */
    streaming: () => enter('streaming', 'Answering…'),
    /** The connection is made anew. */
    waitingAgain() {
      enter('waiting', '');
      stopCounting = countSeconds((seconds) => {
        setText(part('note'), `Connecting again · ${inWords(seconds)}`);
      });
    },
    /** Takes a piece of text, or the whole text. It is drawn in the next frame, once, however many come. */
    write({ add, whole }) {
      text = whole ?? text + add;
      if (asked) return;
      asked = true;
      nextFrame(() => {
        asked = false;
        draw();
      });
    },
    done() {
      enter('done', text === '' ? 'The bot has said nothing.' : '');
      announce(text === '' ? 'The bot has said nothing.' : `${bot}: ${text}`);
    },
    stopped() {
      enter('stopped', 'You stopped this answer.');
      announce('Stopped.');
    },
    failed(error, requestId) {
      enter('failed', '');
      growing(() => showTrouble(item, { error, requestId, onAgain, partly: text !== '' }));
      announce(`No ${text === '' ? '' : 'complete '}answer. ${error.message}`);
    },
  };
}

/** Says why there is no answer, by which id the operator finds it, and when it is worth another try. */
function showTrouble(item, { error, requestId, onAgain, partly }) {
  const part = (name) => item.querySelector(`.${name}`);
  part('trouble').hidden = false;
  setText(part('why'), partly ? `The answer is not complete. ${error.message}` : error.message);
  if (requestId) {
    part('id').hidden = false;
    setText(item.querySelector('code'), requestId);
    part('copy').addEventListener('click', async ({ target }) => {
      const copied = await copyText(item.querySelector('code'));
      setText(target, copied ? 'Copied' : 'Selected');
      announce(copied ? 'The request id is copied.' : 'The request id is selected.');
      setTimeout(() => setText(target, 'Copy'), 2_000);
    });
  }
  const again = part('again');
  const wait = error.retryAfter ?? 0;
  countSeconds((seconds) => {
    const left = Math.max(0, wait - seconds);
    // Not `disabled`: a button that has the focus would lose it, and nobody could read how long it takes.
    again.ariaDisabled = left > 0 ? 'true' : null;
    setText(again, left > 0 ? `Send again in ${inWords(left)}` : 'Send again');
    return left === 0;
  });
  again.addEventListener('click', () => {
    if (again.hidden || again.ariaDisabled === 'true' || !onAgain()) return;
    // One press, one message: each is a run of the bot.
    byId('text').focus();
    again.hidden = true;
  });
}

/** The messages as text, for `restoreMessages`. */
export function keptMessages() {
  return Array.from(byId('messages').children, (item) => ({
    bot: item.querySelector('.name')?.textContent,
    text: item.querySelector('.text').textContent,
    note: ['done', undefined].includes(item.dataset.state) ? '' : 'This answer is not complete.',
  }));
}

/** Shows messages of before as they were, but for what could be done about them. */
export function restoreMessages(messages) {
  for (const { bot, text, note } of messages) {
    if (bot === undefined) addQuestion(text);
    else {
      const item = fromTemplate('answer');
      item.dataset.state = 'done';
      for (const [name, value] of Object.entries({ name: bot, text, note }))
        item.querySelector(`.${name}`).textContent = value;
      byId('messages').append(item);
    }
  }
}
