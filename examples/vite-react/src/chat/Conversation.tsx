import { useBot } from 'bot-relay-client/react';
import { mayHelp } from '../error-text.ts';
import { OTHER_BUTTON } from '../ui/buttons.ts';
import { Failure } from '../ui/Failure.tsx';
import { Composer } from './Composer.tsx';
import { EmptyChat } from './EmptyChat.tsx';
import { MessageList } from './MessageList.tsx';

interface Props {
  readonly id: string;
  /** Nothing was said yet, as far as this browser knows. */
  readonly isNew: boolean;
  readonly onSend: (text: string) => void;
}

export function Conversation({ id, isNew, onSend }: Props) {
  const bot = useBot({ id });
  const { messages, status, isLoading, failedHistory, stop } = bot;
  const isBusy = status !== 'ready' && status !== 'error';
  // An answer shows its own error.
  const error = messages.some((message) => message.error === bot.error) ? undefined : bot.error;

  /** Resolves with false if the message was not sent, or was refused for good. */
  async function send(text: string) {
    onSend(text);
    const answer = await bot.send(text);
    return answer !== undefined && (!answer.error || mayHelp(answer.error));
  }

  return (
    <main className="flex min-h-0 grow flex-col">
      {messages.length === 0 && (isNew || !isLoading) ? (
        <EmptyChat onChoose={send} />
      ) : (
        <MessageList bot={bot} isBusy={isBusy} />
      )}
      <div className="mx-auto grid w-full max-w-3xl gap-3 px-4 pb-3">
        {failedHistory ? (
          <Failure error={failedHistory.error}>
            <button type="button" className={OTHER_BUTTON} onClick={failedHistory.loadAgain}>
              Load again
            </button>
          </Failure>
        ) : (
          <Failure error={error} />
        )}
        <Composer isBusy={isBusy} onSend={send} onStop={stop} />
        <p className="text-center text-xs text-muted">Answers can be wrong. Check what matters.</p>
      </div>
      <p role="status" className="sr-only">
        {isBusy && 'The answer is coming.'}
      </p>
    </main>
  );
}
