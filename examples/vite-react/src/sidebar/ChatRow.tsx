import { useRef, useState } from 'react';
import { IconButton } from '../ui/IconButton.tsx';
import type { Chat } from './chat-list.ts';
import { DeleteDialog } from './DeleteDialog.tsx';
import { RenameForm } from './RenameForm.tsx';
import type { Chats } from './use-chats.ts';

interface Props {
  readonly chat: Chat;
  readonly chats: Chats;
  readonly onOpen: () => void;
}

export function ChatRow({ chat: { id, title }, chats, onOpen }: Props) {
  const [asks, setAsks] = useState<'rename' | 'delete'>();
  const renameButton = useRef<HTMLButtonElement>(null);
  const close = () => setAsks(undefined);
  const isOpen = id === chats.openId;
  return (
    <li
      className={`group flex items-center rounded-xl pe-1 hover:bg-bubble ${isOpen ? 'bg-bubble font-medium' : ''}`}
    >
      {asks === 'rename' ? (
        <RenameForm
          title={title}
          onRename={(next) => chats.rename(id, next)}
          onClose={close}
          onLeave={() => renameButton.current?.focus()}
        />
      ) : (
        <button
          type="button"
          aria-current={isOpen ? 'page' : undefined}
          className="min-h-11 min-w-0 grow truncate rounded-xl px-3 text-start text-sm"
          onClick={onOpen}
        >
          {title}
        </button>
      )}
      <div className="hidden group-focus-within:flex group-hover:flex pointer-coarse:flex">
        <IconButton
          ref={renameButton}
          icon="rename"
          label={`Rename “${title}”`}
          onClick={() => setAsks('rename')}
        />
        <IconButton icon="remove" label={`Delete “${title}”`} onClick={() => setAsks('delete')} />
      </div>
      {asks === 'delete' && <DeleteDialog title={title} onDelete={() => chats.remove(id)} onClose={close} />}
    </li>
  );
}
