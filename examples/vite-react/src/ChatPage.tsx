import type { Session } from 'bot-relay-client/react';
import { useState } from 'react';
import { Conversation } from './chat/Conversation.tsx';
import { Sidebar } from './sidebar/Sidebar.tsx';
import { useChats } from './sidebar/use-chats.ts';
import { IconButton } from './ui/IconButton.tsx';
import { Modal } from './ui/Modal.tsx';

/** The chats of the user beside the open one; on a phone, they are in a sheet. */
export function ChatPage({ user }: { readonly user: Session['user'] }) {
  const chats = useChats(user.id);
  const [isSheetOpen, setIsSheetOpen] = useState(false);
  const closeSheet = () => setIsSheetOpen(false);
  const title = chats.chats.find(({ id }) => id === chats.openId)?.title;
  return (
    <div className="flex h-dvh">
      <aside className="hidden w-72 shrink-0 border-e border-line md:block">
        <Sidebar chats={chats} userName={user.name} />
      </aside>
      {isSheetOpen && (
        <Modal
          label="Chats"
          className="m-0 h-dvh max-h-none w-[min(20rem,85vw)] max-w-none border-e border-line md:hidden"
          onClose={closeSheet}
        >
          <Sidebar chats={chats} userName={user.name} onChosen={closeSheet} />
        </Modal>
      )}
      <div className="flex min-w-0 grow flex-col">
        <header className="flex min-h-14 items-center gap-2 px-2 md:px-6">
          <IconButton icon="menu" label="Chats" className="md:hidden" onClick={() => setIsSheetOpen(true)} />
          <h1 className="min-w-0 grow truncate font-medium">{title ?? 'New chat'}</h1>
          <IconButton icon="new" label="New chat" className="md:hidden" onClick={chats.start} />
        </header>
        <Conversation key={chats.openId} id={chats.openId} isNew={!title} onSend={chats.touch} />
      </div>
    </div>
  );
}
