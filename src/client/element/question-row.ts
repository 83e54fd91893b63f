import { textOf } from '../channel/channel-state.ts';
import type { ChannelMessage, FilePart } from '../channel/channel-types.ts';
import { copyFrom, type RowDependencies } from './chat-tools.ts';
import { iconButton, newElement, setText } from './dom.ts';
import { pictureOf, thumbnailOf } from './thumbnails.ts';
import { sentTime } from './time-text.ts';
import type { Words } from './words/words.ts';

/** The row of a message of the user. */
export function questionRow(message: ChannelMessage, dependencies: RowDependencies) {
  const { words } = dependencies.tools;
  const text = newElement('p', { class: 'text', dir: 'auto' }, textOf(message));
  const files = message.parts.filter((part) => part.type === 'file');
  const list = newElement('ul', { class: 'sent-files' }, ...files.map((file) => fileItem(file, words.file)));
  const note = newElement('p', { class: 'note' });
  const head = newElement('p', { class: 'head', part: 'message-head' }, newElement('b', {}, words.saidYou));
  const element = newElement('li', { part: 'message question', class: 'question' }, head);
  if (files.length > 0) element.append(list);
  if (text.textContent) element.append(text);
  element.append(note, actionsOf(message, dependencies));
  const update = ({ state }: ChannelMessage) => {
    element.dataset.state = state;
    setText(note, noteOf(state, words));
  };
  update(message);
  return { element, update };
}

function noteOf(state: ChannelMessage['state'], words: Words): string {
  if (state === 'stopped') return words.unsent;
  return state === 'queued' ? words.queued : '';
}

/** What a user can do with their own message: copy it, and send another form of it. */
function actionsOf(message: ChannelMessage, { tools, onEdit }: RowDependencies): HTMLElement {
  const { words, lang } = tools;
  const text = textOf(message);
  const copy = iconButton('copy', words.copyQuestion, {
    part: 'copy',
    onClick: () => void copyFrom(copy, text, tools),
  });
  const edit = iconButton('edit', words.edit, { part: 'edit', onClick: () => onEdit(text) });
  const buttons = text === '' ? [] : [copy, edit];
  const children = [...sentTime(message.metadata, lang), ...buttons];
  return newElement('div', { class: 'actions', part: 'actions' }, children);
}

/** A file of a message. Its address is at the relay, and the browser downloads it. */
function fileItem(file: FilePart, unnamed: string): HTMLElement {
  const { filename: name = unnamed, url } = file;
  const content = [pictureOf(thumbnailOf(file)), newElement('span', { dir: 'auto', title: name }, name)];
  if (!url) return newElement('li', {}, newElement('span', { class: 'file' }, content));
  const link = { class: 'file', part: 'link', href: url, target: '_blank', rel: 'noopener noreferrer' };
  return newElement('li', {}, newElement('a', link, content));
}
