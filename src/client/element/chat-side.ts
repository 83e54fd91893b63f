import type { ChannelSnapshot } from '../channel/channel-types.ts';
import { type ChatListDependencies, chatList } from './chat-list.ts';
import { button, iconButton, newElement } from './dom.ts';
import { icon } from './icons.ts';
import type { Words } from './words/words.ts';

interface SideDependencies extends Omit<ChatListDependencies, 'onGone'> {
  /** The user wants a new chat. */
  readonly onNewChat: () => void;
  /** The conversation beside the list. */
  readonly main: HTMLElement;
}

/**
 * The list of chats, and the button that shows it. Where the element is wide it stands beside the conversation, and can be
 * hidden; where it is narrow, it is a sheet over it.
 */
export function chatSide({ main, onNewChat, onOpen, ...dependencies }: SideDependencies) {
  const { words } = dependencies.tools;
  const { sheet, act, update: fold, newChat, element, show } = folding(main, words, () => act(onNewChat));
  const list = chatList({
    ...dependencies,
    onOpen: (isOther) => act(() => onOpen(isOther)),
    onGone: () => newChat.focus(),
  });
  element.append(list.element);
  return {
    element,
    show,
    /** A press beside the sheet. */
    closeSheet: () => sheet.isOpen() && sheet.close(),
    /** Draws the list from now on when it changes. The returned function ends that. */
    begin: () => dependencies.chats.subscribe(list.draw),
    update(snapshot: ChannelSnapshot): void {
      fold(Boolean(snapshot.session));
      list.update(snapshot);
    },
  };
}

/** The box of the list with its buttons, which is hidden and shown. */
function folding(main: HTMLElement, words: Words, onNewChat: () => void) {
  const newChat = button('', 'new-chat', onNewChat);
  newChat.append(icon('newChat'), words.newChat);
  const hide = iconButton('chats', words.hideChats, { part: 'hide-chats', onClick: close });
  const show = iconButton('chats', words.chats, { part: 'chats', onClick: open });
  show.classList.add('show-chats');
  const attributes = { class: 'side', part: 'sidebar', 'aria-label': words.chats };
  const element = newElement('nav', attributes, newElement('div', { class: 'side-head' }, newChat, hide));
  let isFolded = false;
  let isSignedIn = false;
  const isOpen = () => element.hasAttribute('data-open');
  function draw(): void {
    element.hidden = isFolded || !isSignedIn;
    show.hidden = !isSignedIn;
  }
  /** What is behind the sheet cannot be used until it is closed. */
  function setSheet(isOn: boolean): void {
    element.toggleAttribute('data-open', isOn);
    main.inert = isOn;
  }
  function open(): void {
    isFolded = false;
    draw();
    if (!element.checkVisibility()) setSheet(true);
    newChat.focus();
  }
  function close(): void {
    if (isOpen()) setSheet(false);
    else isFolded = true;
    draw();
    show.focus();
  }
  element.addEventListener('keydown', ({ key }) => {
    if (key === 'Escape' && isOpen()) close();
  });
  return {
    ...{ element, show, newChat, sheet: { isOpen, close } },
    /** Does what the user has chosen in the list. A sheet closes. */
    act(then: () => void): void {
      setSheet(false);
      then();
    },
    update(isThere: boolean): void {
      isSignedIn = isThere;
      if (!isThere) setSheet(false);
      draw();
    },
  };
}
