import type { ChannelSnapshot } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';
import type { ChatDependencies } from './chat-dependencies.ts';
import { chatList } from './chat-list.ts';
import type { ChatTools } from './chat-tools.ts';
import { button, newElement, setText } from './dom.ts';
import { showError } from './error-text.ts';
import { fill } from './words/words.ts';

interface HeaderDependencies
  extends Pick<
    ChatDependencies,
    'client' | 'channel' | 'botName' | 'hasChat' | 'chats' | 'bot' | 'bots' | 'onBot'
  > {
  readonly tools: ChatTools;
  /** The user has opened another chat. */
  readonly onOpen: () => void;
}

/** The name of the bot or a choice of bots, who is signed in, and the buttons for chats and to sign out. */
export function chatHeader(dependencies: HeaderDependencies) {
  const { client, channel, botName, hasChat, tools, onOpen } = dependencies;
  // Without the group `chat` there is no history, so nobody could go back to an earlier chat.
  const chats = hasChat ? dependencies.chats : undefined;
  const { words } = tools;
  const title = newElement('h2', { part: 'title' }, newElement('span', { dir: 'auto' }, botName));
  const who = newElement('p', { class: 'note who', dir: 'auto' });
  const why = newElement('p', { class: 'why' });
  const list = chats && chatList({ tools, chats, channel, onOpen });
  const newChat = button(words.newChat, 'new-chat', () => {
    if (chats) {
      chats.begin();
      onOpen();
    } else if (confirm(words.newChatAsk)) void channel.reset();
  });
  const signOut = button(words.signOut, 'sign-out', async () => {
    setText(why, '');
    try {
      const { logoutUrl } = await client.signOut();
      if (logoutUrl) location.assign(logoutUrl);
    } catch (error) {
      showError(why, tools, error as RelayError);
    }
  });
  const buttons = [...(list ? [list.element] : []), newChat, signOut];
  const element = newElement(
    'header',
    { part: 'header' },
    title,
    ...botChoice(dependencies, title),
    who,
    ...buttons,
    why,
  );
  return {
    element,
    /** Shows who is signed in, and the buttons that can be used. */
    update(snapshot: ChannelSnapshot): void {
      const { session, messages } = snapshot;
      setText(who, session ? fill(words.signedInAs, { user: session.user.name }) : '');
      signOut.hidden = !session;
      newChat.hidden = !session || !hasChat || messages.length === 0;
      list?.update(snapshot);
    },
  };
}

/** The choice of bots, if there are several. The title is hidden if it is only the name of the bot. */
function botChoice({ bot, bots, onBot, botName, tools }: HeaderDependencies, title: Element): HTMLElement[] {
  if (bots.length < 2) return [];
  const select = newElement('select', { part: 'bots', 'aria-label': tools.words.bot });
  for (const one of bots) select.append(new Option(one, one, false, one === bot));
  select.addEventListener('change', () => onBot(select.value));
  title.classList.toggle('unseen', bots.includes(botName));
  return [select];
}
