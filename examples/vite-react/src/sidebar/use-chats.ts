import { createChannel, useBotClient } from 'bot-relay-client/react';
import { useEffect, useState } from 'react';
import { type Chat, keyOf, loadChats, saveChats, titleOf } from './chat-list.ts';

/** The id in the address of the page, which is the open chat after a reload. */
const idInAddress = () => location.hash.slice(1);
const newId = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join('');

/** The chats of a user in this browser, and the one that is open. */
export function useChats(user: string) {
  const client = useBotClient();
  const [chats, setChats] = useState(() => loadChats(user));
  const [openId, setOpenId] = useState(() => {
    const id = idInAddress();
    return chats.some((chat) => chat.id === id) ? id : newId();
  });

  useEffect(() => {
    // Another tab has changed the list.
    const reload = ({ key }: StorageEvent) => key === keyOf(user) && setChats(loadChats(user));
    const follow = () => idInAddress() && setOpenId(idInAddress());
    addEventListener('storage', reload);
    addEventListener('hashchange', follow);
    return () => {
      removeEventListener('storage', reload);
      removeEventListener('hashchange', follow);
    };
  }, [user]);

  function change(next: (chats: readonly Chat[]) => readonly Chat[]) {
    const changed = next(loadChats(user));
    saveChats(user, changed);
    setChats(changed);
  }

  function open(id: string) {
    location.hash = id;
    setOpenId(id);
  }

  return {
    chats,
    openId,
    open,
    start: () => open(newId()),
    /** The open chat has a new message: it is the first of the list. */
    touch(text: string) {
      const known = chats.find(({ id }) => id === openId);
      const chat = { id: openId, title: known?.title ?? titleOf(text), at: Date.now() };
      change((all) => [chat, ...all.filter(({ id }) => id !== openId)]);
      history.replaceState(null, '', `#${openId}`);
    },
    rename(id: string, title: string) {
      change((all) => all.map((chat) => (chat.id === id ? { ...chat, title } : chat)));
    },
    /** Has the bot service forget what was said. Returns false if that has failed. */
    async remove(id: string) {
      if (!(await createChannel(client, { id }).reset())) return false;
      change((all) => all.filter((chat) => chat.id !== id));
      if (id === openId) open(newId());
      return true;
    },
  };
}

export type Chats = ReturnType<typeof useChats>;
