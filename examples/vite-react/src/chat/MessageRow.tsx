import { type Bot, type ChannelMessage, textOf } from 'bot-relay-client/react';
import { memo } from 'react';
import { mayHelp } from '../error-text.ts';
import { OTHER_BUTTON } from '../ui/buttons.ts';
import { Failure } from '../ui/Failure.tsx';
import { IconButton } from '../ui/IconButton.tsx';
import { Logo } from '../ui/Logo.tsx';
import { CopyButton } from './CopyButton.tsx';
import { Markdown } from './Markdown.tsx';
import { Tools } from './Tools.tsx';
import { Waiting } from './Waiting.tsx';

interface Props extends Pick<Bot, 'regenerate' | 'consent'> {
  readonly message: ChannelMessage;
  readonly canRegenerate: boolean;
}

/** One message. It is drawn again only when it has changed. */
export const MessageRow = memo(({ message, ...props }: Props) => (
  <li data-from={message.role} data-state={message.state} className="min-w-0">
    {message.role === 'user' ? <Question message={message} /> : <Answer message={message} {...props} />}
  </li>
));

function Question({ message }: Pick<Props, 'message'>) {
  return (
    <article
      aria-label="You"
      className="ms-auto w-fit max-w-[85%] rounded-3xl rounded-ee-lg bg-bubble px-5 py-3 wrap-anywhere whitespace-pre-wrap"
    >
      {textOf(message)}
    </article>
  );
}

function Answer({ message, canRegenerate, regenerate, consent }: Props) {
  const { id, state, error } = message;
  const text = textOf(message);
  const hasEnded = state === 'done' || state === 'stopped';
  return (
    <article aria-label="Answer" className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-4">
      <Logo />
      <div className="grid min-w-0 content-start gap-3 pt-0.5">
        {text && <Markdown text={text} />}
        <Tools message={message} consent={consent} />
        {state === 'submitted' && <Waiting />}
        {state === 'reconnecting' && (
          <p className="motion-safe:animate-pulse text-sm text-muted">Connecting again …</p>
        )}
        {state === 'stopped' && <p className="text-sm text-muted">You stopped this answer.</p>}
        <Failure error={error}>
          {error && canRegenerate && mayHelp(error) && (
            <button type="button" className={OTHER_BUTTON} onClick={() => regenerate(id)}>
              Try again
            </button>
          )}
        </Failure>
        {hasEnded && (
          <div className="-ms-2 flex">
            {text && <CopyButton label="Copy answer" text={text} />}
            {canRegenerate && (
              <IconButton icon="regenerate" label="Regenerate" onClick={() => regenerate(id)} />
            )}
          </div>
        )}
      </div>
    </article>
  );
}
