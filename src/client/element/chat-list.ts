import type { Channel, ChannelSnapshot } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';
import type { ChatTools } from './chat-tools.ts';
import type { Chats } from './chats.ts';
import { askIn } from './dialog.ts';
import { button, iconButton, newElement, placeIn, setAttribute, setLabel, setText } from './dom.ts';
import { showError } from './error-text.ts';
import type { Chat } from './kept-chats.ts';
import { timeText } from './time-text.ts';
import { fill } from './words/words.ts';

/** What the list of chats needs. */
export interface ChatListDependencies {
  readonly tools: ChatTools;
  readonly chats: Chats;
  readonly channel: Pick<Channel, 'id'>;
  /** The user has chosen a chat, or the open one was forgotten. `isOther` says whether it was not open before. */
  readonly onOpen: (isOther: boolean) => void;
  /** The button that had the focus is gone. */
  readonly onGone: () => void;
}

/** The list of this browser's chats with the bot: each can be opened, renamed and deleted. */
export function chatList(dependencies: ChatListDependencies) {
  const { tools, chats, channel } = dependencies;
  const { words } = tools;
  const list = newElement('ul', { 'aria-label': words.chats });
  const why = newElement('p', { class: 'why' });
  const note = newElement('p', { class: 'note' });
  const element = newElement('div', { class: 'chat-list', part: 'chat-list' }, list, why, note);
  const rows = new Map<string, ReturnType<typeof chatRow>>();
  function rowOf(chat: Chat) {
    const row = rows.get(chat.id) ?? chatRow(chat.id, { ...dependencies, why });
    rows.set(chat.id, row);
    row.update(chat, chat.id === channel.id);
    return row.element;
  }
  function draw(): void {
    const all = chats.all();
    for (const [id, { element: row }] of rows) {
      if (all.some((one) => one.id === id)) continue;
      row.remove();
      rows.delete(id);
    }
    placeIn(list, all.map(rowOf));
    setText(note, all.length > 0 ? words.chatsNote : words.noChats);
  }
  let shown = '';
  return {
    element,
    draw,
    /** Draws the list if the open chat, or what is said in it, makes another one. */
    update(snapshot: ChannelSnapshot): void {
      chats.note(snapshot);
      const { session, messages, isLoading } = snapshot;
      const key = `${session?.user.id} ${channel.id} ${messages.length} ${isLoading}`;
      // This is called for each frame of an answer, and to read the list takes long.
      if (key === shown) return;
      shown = key;
      setText(why, '');
      draw();
    },
  };
}

interface RowDependencies extends ChatListDependencies {
  readonly why: HTMLElement;
}

function chatRow(id: string, dependencies: RowDependencies) {
  const { tools, chats, channel, onOpen } = dependencies;
  const { words, lang } = tools;
  let title = '';
  const text = newElement('span', { dir: 'auto' });
  const open = button('', 'chat', () => {
    const isOther = id !== channel.id;
    chats.open(id);
    onOpen(isOther);
  });
  open.append(text);
  const rename = iconButton('edit', '', {
    part: 'rename-chat',
    onClick: () => void renameChat(element, { ...dependencies, id, title }),
  });
  const remove = iconButton('remove', '', {
    part: 'delete-chat',
    onClick: () => void deleteChat(element, { ...dependencies, id, title }),
  });
  const element = newElement('li', {}, open, newElement('div', { class: 'row-actions' }, rename, remove));
  return {
    element,
    update(chat: Chat, isOpen: boolean): void {
      title = chat.title || words.file;
      setText(text, title);
      setAttribute(open, 'title', timeText(new Date(chat.at), lang));
      setAttribute(open, 'aria-current', isOpen ? 'true' : undefined);
      setLabel(rename, fill(words.renameChat, { chat: title }));
      setLabel(remove, fill(words.deleteChat, { chat: title }));
    },
  };
}

interface OfChat extends RowDependencies {
  readonly id: string;
  readonly title: string;
}

/** The chat around an element: its dialogs stand there. */
const chatAround = (element: Element) => element.closest('.chat') as HTMLElement;

async function renameChat(element: Element, { id, title, tools, chats }: OfChat): Promise<void> {
  const { words } = tools;
  const input = newElement('input', {
    value: title,
    'aria-label': words.chatTitle,
    maxlength: '80',
    required: '',
  });
  input.dir = 'auto';
  const question = { title: words.chatTitle, content: [input], yes: words.save, no: words.cancel };
  if (await askIn(chatAround(element), question)) chats.rename(id, input.value.trim() || title);
}

async function deleteChat(
  element: Element,
  { id, title, tools, chats, channel, why, onOpen, onGone }: OfChat,
): Promise<void> {
  const { words } = tools;
  const content = [
    newElement('p', {}, newElement('b', { dir: 'auto' }, title)),
    newElement('p', {}, words.deleteChatNote),
  ];
  const question = { title: words.deleteChatAsk, content, yes: words.delete, no: words.cancel };
  if (!(await askIn(chatAround(element), { ...question, isDanger: true }))) return;
  setText(why, '');
  try {
    if (!(await chats.forget(id))) return;
    // The user may have opened another chat meanwhile.
    if (id === channel.id) onOpen(true);
    else onGone();
  } catch (error) {
    // The error of the open chat is shown at the composer.
    if (id !== channel.id) showError(why, tools, error as RelayError);
  }
}
