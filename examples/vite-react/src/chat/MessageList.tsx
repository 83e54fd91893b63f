import type { Bot } from 'bot-relay-client/react';
import { IconButton } from '../ui/IconButton.tsx';
import { MessageRow } from './MessageRow.tsx';
import { useFollowing } from './use-following.ts';

export function MessageList({ bot, isBusy }: { readonly bot: Bot; readonly isBusy: boolean }) {
  const { messages, regenerate, consent } = bot;
  const { ref, onScroll, isAtEnd, toEnd } = useFollowing();
  return (
    <div className="relative min-h-0 grow">
      <div ref={ref} onScroll={onScroll} className="h-full overflow-y-auto">
        <ol aria-label="Conversation" className="mx-auto grid max-w-3xl gap-6 px-4 py-6">
          {messages.map((message, index) => (
            <MessageRow
              key={message.id}
              message={message}
              canRegenerate={!isBusy && index === messages.length - 1}
              regenerate={regenerate}
              consent={consent}
            />
          ))}
        </ol>
      </div>
      {!isAtEnd && (
        <IconButton
          icon="down"
          label="Scroll to the end"
          className="absolute inset-x-0 bottom-3 mx-auto rounded-full! border border-line bg-raised shadow-lg"
          onClick={toEnd}
        />
      )}
    </div>
  );
}
