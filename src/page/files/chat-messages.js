import { addAnswer } from './chat-answer.js';
import { addTo, fromTemplate, setText } from './chat-tools.js';

const NEW_TAB = { target: '_blank', rel: 'noopener' };

/**
 * Adds a message of the user to `list`, above those of this page with `isPast`. Each of `files` is `{ name, url }`;
 * without an address it has no link.
 */
export function addQuestion(list, text, { files = [], isPast = false } = {}) {
  const item = fromTemplate('question');
  item.querySelector('.text').textContent = text;
  item.querySelector('.files').append(...files.map(fileRow));
  addTo(list, item, isPast);
}

function fileRow({ name = 'A file', url }) {
  const row = document.createElement('li');
  if (url === undefined) row.textContent = name;
  // In a new tab, since the browser shows some files, such as pictures, in the place of the page.
  else row.append(Object.assign(document.createElement('a'), { ...NEW_TAB, textContent: name, href: url }));
  return row;
}

/** Removes the links of files with this name in `list`, and leaves their names. */
export function removeLinks(list, name) {
  for (const link of list.querySelectorAll('.question .files a'))
    if (link.textContent === name) link.replaceWith(name);
}

/** Says at the top of `list` why the conversation is not shown; `onAgain` loads it again. */
export function addNotLoaded(list, error, onAgain) {
  const item = fromTemplate('not-loaded');
  setText(item.querySelector('.why'), `The conversation could not be loaded. ${error.message}`);
  item.querySelector('.load').addEventListener('click', onAgain);
  list.prepend(item);
}

/** The messages of `list` as plain data, for `restoreMessages`. */
export function savedMessages(list) {
  return Array.from(list.querySelectorAll('.question, .answer'), (item) => ({
    bot: item.querySelector('.name')?.textContent,
    text: item.querySelector('.text').textContent,
    note: ['done', undefined].includes(item.dataset.state) ? '' : 'This answer is not complete.',
  }));
}

/** Shows saved messages again, without their buttons. */
export function restoreMessages(list, messages) {
  for (const { bot, text, note } of messages) {
    if (bot === undefined) addQuestion(list, text, { isPast: true });
    else {
      const { element } = addAnswer(list, bot, { isPast: true });
      element.querySelector('.text').textContent = text;
      element.querySelector('.note').textContent = note;
    }
  }
}
