import type { ChannelSnapshot } from '../channel/channel-types.ts';
import { accountMenu } from './account-menu.ts';
import type { Looks } from './avatar.ts';
import { botName } from './bot-name.ts';
import type { ChatDependencies } from './chat-dependencies.ts';
import type { ChatTools } from './chat-tools.ts';
import { iconButton, newElement, setText } from './dom.ts';

interface HeaderDependencies
  extends Pick<ChatDependencies, 'client' | 'hasChat' | 'bot' | 'bots' | 'onBot' | 'looks'> {
  readonly tools: ChatTools;
  /** The button that shows the list of chats; undefined if there is none. */
  readonly showChats?: HTMLElement | undefined;
  readonly onNewChat: () => void;
}

/** The list's button, the bot's name or a choice of bots, a new chat, and who is signed in. */
export function chatHeader(dependencies: HeaderDependencies) {
  const { hasChat, bot, bots, onBot, tools, showChats, onNewChat } = dependencies;
  const { words } = tools;
  const name = newElement('span', { dir: 'auto' });
  const title = newElement('h2', { part: 'title' }, name);
  const why = newElement('p', { class: 'why' });
  const account = accountMenu({ ...dependencies, why });
  const newChat = iconButton('newChat', words.newChat, { part: 'new-chat', onClick: onNewChat });
  const choice = bots.length > 1 ? [botChoice({ bot, bots, onBot, tools })] : [];
  const element = newElement(
    'header',
    { part: 'header' },
    ...(showChats ? [showChats] : []),
    ...[tools.avatar(), title, ...choice, newElement('span', { class: 'space' }), newChat],
    account.element,
  );
  return {
    element,
    /** Why the user could not be signed out. */
    why,
    /** Shows the name of the bot. */
    look(looks: Looks): void {
      setText(name, looks.title);
      // The choice has it.
      title.classList.toggle('unseen', choice.length > 0 && looks.title === botName(bot, bots));
    },
    /** Shows who is signed in, and the buttons that can be used. */
    update(snapshot: ChannelSnapshot): void {
      const { session, messages } = snapshot;
      newChat.hidden = !session || !hasChat || messages.length === 0;
      account.update(snapshot);
    },
  };
}

/** The choice of bots. */
function botChoice({
  bot,
  bots,
  onBot,
  tools,
}: Pick<HeaderDependencies, 'bot' | 'bots' | 'onBot' | 'tools'>) {
  const select = newElement('select', { part: 'bots', 'aria-label': tools.words.bot });
  for (const one of bots) select.append(new Option(botName(one, bots), one, false, one === bot));
  select.addEventListener('change', () => onBot(select.value));
  return select;
}
