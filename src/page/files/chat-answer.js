import {
  addTo,
  announce,
  asDuration,
  byId,
  copyText,
  countSeconds,
  fromTemplate,
  keepAtEnd,
  nextFrame,
  setText,
} from './chat-tools.js';

/**
 * Adds an empty answer to `list`, which waits, or is over with `isPast`. `bot` is the bot's name; `onAgain` sends the
 * question again and returns true if it did. Returns functions that change the state of the answer; `done`, `stopped`
 * and `failed` end it.
 */
export function addAnswer(list, bot, { onAgain = undefined, isPast = false } = {}) {
  const item = fromTemplate('answer');
  const { text, write, enter, count } = answerState(item);
  item.querySelector('.name').textContent = bot;
  if (isPast) item.dataset.state = 'done';
  else count('Waiting for the answer');
  addTo(list, item, isPast);
  return {
    element: item,
    write,
    /** The answer begins, or continues. */
    streaming: () => enter('streaming', 'Answering…'),
    /** The client connects again. */
    waitingAgain() {
      enter('waiting', '');
      count('Connecting again');
    },
    /** Asks whether the bot may use its tools; `onReply` is called once, with the button's value. */
    ask: (tools, onReply) => askForTools(item, tools, onReply),
    done() {
      const nothing = text() === '' ? 'The bot has said nothing.' : '';
      enter('done', nothing);
      announce(nothing || `${bot}: ${text()}`);
    },
    stopped() {
      enter('stopped', 'You stopped this answer.');
      announce('Stopped.');
    },
    failed(error, requestId) {
      const isPartial = text() !== '';
      enter('failed', '');
      keepAtEnd(() => showFailure(item, { error, requestId, onAgain, isPartial }));
      announce(`No ${isPartial ? 'complete ' : ''}answer. ${error.message}`);
    },
  };
}

/** The text of an answer, and its state with a note. */
function answerState(item) {
  const part = (name) => item.querySelector(`.${name}`);
  let text = '';
  let isDrawScheduled = false;
  let stopCounting = () => {};
  const draw = () => keepAtEnd(() => setText(part('text'), text));
  return {
    text: () => text,
    /** Appends `add`, or replaces the text by `whole`. Several calls are drawn together in the next frame. */
    write({ add, whole }) {
      text = whole ?? text + add;
      if (isDrawScheduled) return;
      isDrawScheduled = true;
      nextFrame(() => {
        isDrawScheduled = false;
        draw();
      });
    },
    /** Changes the state, and shows a sentence about it. */
    enter(state, note) {
      stopCounting();
      keepAtEnd(() => {
        item.dataset.state = state;
        setText(part('text'), text);
        setText(part('note'), note);
      });
    },
    /** Shows a note with the time since now. */
    count(note) {
      stopCounting = countSeconds((seconds) => setText(part('note'), `${note} · ${asDuration(seconds)}`));
    },
  };
}

function askForTools(item, tools, onReply) {
  const consent = item.querySelector('.consent');
  keepAtEnd(() => {
    consent.hidden = false;
    setText(item.querySelector('.tool'), tools.join(', '));
  });
  announce(`The bot asks to use ${tools.join(', ')}.`);
  consent.addEventListener('click', ({ target }) => {
    if (consent.hidden || target.value === undefined || !onReply(target.value)) return;
    // The button that is hidden has the focus.
    byId('text').focus();
    consent.hidden = true;
  });
}

/** Shows why there is no answer, the request id for the operator, and when the user can send the message again. */
function showFailure(item, { error, requestId, onAgain, isPartial }) {
  const part = (name) => item.querySelector(`.${name}`);
  part('trouble').hidden = false;
  setText(part('why'), isPartial ? `The answer is not complete. ${error.message}` : error.message);
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
  again.hidden = onAgain === undefined;
  const wait = error.retryAfter ?? 0;
  countSeconds((seconds) => {
    const left = Math.max(0, wait - seconds);
    // Not `disabled`: the button would lose the focus, and screen readers could not read the time that is left.
    again.ariaDisabled = left > 0 ? 'true' : null;
    setText(again, left > 0 ? `Send again in ${asDuration(left)}` : 'Send again');
    return left === 0;
  });
  again.addEventListener('click', () => {
    if (again.hidden || again.ariaDisabled === 'true' || !onAgain()) return;
    // One click sends one message, since each is a run of the bot.
    byId('text').focus();
    again.hidden = true;
  });
}
