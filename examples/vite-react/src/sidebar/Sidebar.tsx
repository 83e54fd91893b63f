import { BRAND } from '../brand.ts';
import { OTHER_BUTTON } from '../ui/buttons.ts';
import { Icon } from '../ui/Icon.tsx';
import { Logo } from '../ui/Logo.tsx';
import { Account } from './Account.tsx';
import { ChatRow } from './ChatRow.tsx';
import { byDay } from './chat-list.ts';
import type { Chats } from './use-chats.ts';

interface Props {
  readonly chats: Chats;
  readonly userName: string;
  /** A chat was chosen. */
  readonly onChosen?: () => void;
}

export function Sidebar({ chats, userName, onChosen }: Props) {
  const choose = (work: () => void) => () => {
    work();
    onChosen?.();
  };
  return (
    <div className="flex h-full flex-col bg-side">
      <div className="grid gap-4 p-4">
        <p className="flex items-center gap-3 px-1 font-semibold">
          <Logo />
          {BRAND.name}
        </p>
        <button type="button" className={OTHER_BUTTON} onClick={choose(chats.start)}>
          <Icon name="new" />
          New chat
        </button>
      </div>
      <nav aria-label="Chats" className="min-h-0 grow overflow-y-auto px-3 pb-4">
        {chats.chats.length === 0 && (
          <p className="p-3 text-sm text-muted">Your chats will be listed here.</p>
        )}
        {byDay(chats.chats).map(([day, those]) => (
          <section key={day} aria-label={day}>
            <h2 className="px-3 pt-4 pb-1 text-xs font-medium text-muted">{day}</h2>
            <ul>
              {those.map((chat) => (
                <ChatRow key={chat.id} chat={chat} chats={chats} onOpen={choose(() => chats.open(chat.id))} />
              ))}
            </ul>
          </section>
        ))}
      </nav>
      <Account name={userName} />
    </div>
  );
}
