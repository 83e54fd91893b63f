import type { Channel, ChannelSnapshot } from '../channel/channel-types.ts';
import type { ChatTools } from './chat-tools.ts';
import type { Chats } from './chats.ts';
import { button, newElement, setAttribute } from './dom.ts';
import type { Chat } from './kept-chats.ts';
import { timeText } from './time-text.ts';

/** What the list of chats needs. `onOpen` is called when another chat was opened, or this one was forgotten. */
export interface ChatListDependencies {
  readonly tools: ChatTools;
  readonly chats: Chats;
  readonly channel: Pick<Channel, 'id' | 'reset'>;
  readonly onOpen: () => void;
}

/** The list of this browser's chats, and the button that shows it. */
export function chatList({ tools, chats, channel, onOpen }: ChatListDependencies) {
  const { words } = tools;
  const summary = newElement('summary', { class: 'button', part: 'button chats' }, words.chats);
  const list = newElement('ul', { 'aria-label': words.chats });
  const forget = button(words.forgetChat, 'forget-chat', async () => {
    if (!confirm(words.forgetChatAsk)) return;
    close();
    if (await forgetChat({ chats, channel, onOpen })) shown = '';
  });
  const panel = newElement('div', { class: 'panel', part: 'chat-list' }, list, forget);
  panel.append(newElement('p', { class: 'note' }, words.chatsNote));
  const element = newElement('details', { class: 'chats' }, summary, panel);
  function close(): void {
    element.open = false;
    summary.focus();
  }
  function draw(): void {
    const item = (chat: Chat) => {
      const isOpen = chat.id === channel.id;
      const open = () => {
        close();
        chats.open(chat.id);
        if (!isOpen) onOpen();
      };
      return chatItem(chat, { tools, isOpen, open });
    };
    list.replaceChildren(...chats.all().map(item));
  }
  let shown = '';
  // Not at `toggle`, which comes later: a user who presses Tab quickly would lose the focus.
  summary.addEventListener('click', draw);
  closeOnLeaving(element, close);
  return {
    element,
    /** Shows the button if there are chats. */
    update(snapshot: ChannelSnapshot): void {
      chats.note(snapshot);
      const { session, messages, isLoading } = snapshot;
      const key = `${session?.user.id} ${channel.id} ${messages.length} ${isLoading}`;
      // This is called for each frame of an answer, and to read the list takes long.
      if (key === shown) return;
      shown = key;
      element.hidden = !session || chats.all().length === 0;
      element.open &&= !element.hidden;
      forget.hidden = !chats.all().some(({ id }) => id === channel.id);
    },
  };
}

/** Forgets the open chat and takes it off the list. Resolves with false if that has failed. */
async function forgetChat({ chats, channel, onOpen }: Omit<ChatListDependencies, 'tools'>): Promise<boolean> {
  const { id } = channel;
  if (!(await channel.reset())) return false;
  chats.remove(id);
  // The user may have opened another chat meanwhile.
  if (id === channel.id) onOpen();
  return true;
}

interface ItemDependencies extends Pick<ChatListDependencies, 'tools'> {
  readonly isOpen: boolean;
  readonly open: () => void;
}

function chatItem({ title, at }: Chat, { tools, isOpen, open }: ItemDependencies): HTMLElement {
  const { words, lang } = tools;
  const time = newElement('time', { class: 'note' }, timeText(new Date(at), lang));
  const element = button('', 'chat', open);
  element.append(newElement('span', { dir: 'auto' }, title || words.file), time);
  setAttribute(element, 'aria-current', isOpen ? 'true' : undefined);
  return newElement('li', {}, element);
}

/** Closes the list with the Escape key, and when the focus leaves it. */
function closeOnLeaving(element: HTMLDetailsElement, close: () => void): void {
  element.addEventListener('keydown', ({ key }) => {
    if (key === 'Escape') close();
  });
  element.addEventListener('focusout', ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !element.contains(relatedTarget)) element.open = false;
  });
}
