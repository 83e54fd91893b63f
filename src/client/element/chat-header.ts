import type { ChannelSnapshot } from '../channel-types.ts';
import type { ChatParts } from './chat-parts.ts';
import { button, type ChatTools, setText } from './chat-tools.ts';
import { newElement } from './new-element.ts';
import { fill } from './words.ts';

type HeaderParts = Pick<ChatParts, 'client' | 'channel' | 'botName' | 'hasChat'>;

/** The name of the bot, who is signed in, and the buttons for a new chat and to sign out. */
export function chatHeader({ client, channel, botName, hasChat }: HeaderParts, tools: ChatTools) {
  const { words, announce } = tools;
  const title = newElement('h2', { part: 'title', dir: 'auto' }, botName);
  const who = newElement('p', { class: 'note who', dir: 'auto' });
  const why = newElement('p', { class: 'why', role: 'alert' });
  const newChat = button(words.newChat, 'new-chat', () => {
    if (confirm(words.newChatAsk)) void channel.reset();
  });
  const signOut = button(words.signOut, 'sign-out', async () => {
    setText(why, '');
    try {
      const { logoutUrl } = await client.signOut();
      announce(words.signedOut);
      if (logoutUrl) location.assign(logoutUrl);
    } catch (error) {
      setText(why, error instanceof Error ? error.message : String(error));
    }
  });
  const element = newElement('header', { part: 'header' }, title, who, newChat, signOut, why);
  return {
    element,
    /** Shows who is signed in, and what can be done. */
    update({ session, messages }: ChannelSnapshot): void {
      setText(who, session ? fill(words.signedInAs, { user: session.user.name }) : '');
      signOut.hidden = !session;
      newChat.hidden = !session || !hasChat || messages.length === 0;
    },
  };
}
