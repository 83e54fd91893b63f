import { type KeyboardEvent, useEffect, useRef, useState } from 'react';
import { HAS_KEYBOARD } from '../ui/has-keyboard.ts';
import { IconButton } from '../ui/IconButton.tsx';

interface Props {
  readonly isBusy: boolean;
  /** Resolves with false if the user has to change the message. */
  readonly onSend: (text: string) => Promise<boolean>;
  readonly onStop: () => void;
}

const ROUND = 'rounded-full! bg-accent text-on-accent! hover:bg-accent! hover:opacity-90 disabled:opacity-40';

/** Enter sends, Shift+Enter begins a line, and Escape stops the answer. */
export function Composer({ isBusy, onSend, onStop }: Props) {
  const [text, setText] = useState('');
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (HAS_KEYBOARD) field.current?.focus();
  }, []);
  const canSend = !isBusy && text.trim() !== '';

  async function send() {
    if (!canSend) return;
    setText('');
    field.current?.focus();
    // It comes back then, unless the user has begun something else.
    if (!(await onSend(text))) setText((now) => now || text);
  }

  function onKeyDown(event: KeyboardEvent) {
    // Enter also ends a word in the input of some languages.
    if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      send();
    }
    if (event.key === 'Escape' && isBusy) onStop();
  }

  return (
    <form
      className="flex items-end gap-2 rounded-3xl border border-line bg-raised p-2 shadow-sm focus-within:border-accent"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        ref={field}
        aria-label="Message"
        placeholder="Write a message"
        rows={1}
        value={text}
        className="field-sizing-content max-h-48 min-h-11 min-w-0 grow resize-none bg-transparent px-3 py-2.5 outline-none placeholder:text-muted"
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      {isBusy ? (
        <IconButton icon="stop" label="Stop" className={`size-11 ${ROUND}`} onClick={onStop} />
      ) : (
        <IconButton
          icon="send"
          label="Send"
          type="submit"
          className={`size-11 ${ROUND}`}
          disabled={!canSend}
        />
      )}
    </form>
  );
}
