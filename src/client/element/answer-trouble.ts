import type { ChannelMessage } from '../channel-types.ts';
import { textOf } from '../text-of.ts';
import { button, copyFrom, setText } from './chat-tools.ts';
import { newElement } from './new-element.ts';
import type { RowParts } from './row-parts.ts';
import { fill } from './words.ts';

/** Why an answer is not complete, its request id for the operator, and when the user can ask again. */
export function answerTrouble({ tools, channel, onSent }: RowParts) {
  const { words } = tools;
  const why = newElement('p', { class: 'why' });
  const id = newElement('code');
  const copy = button(words.copyId, 'copy-id', () => void copyFrom(copy, id.textContent ?? '', tools));
  const idRow = newElement('p', { class: 'request-id' }, `${words.requestId} `, id, ' ', copy);
  const again = button(words.askAgain, 'ask-again', askAgain);
  const hint = newElement('p', { class: 'note' }, words.askAgainHint);
  const element = newElement('div', { class: 'trouble', part: 'error' }, why, idRow, again, hint);
  element.hidden = true;
  let messageId = '';
  let shown: ChannelMessage['error'];

  function askAgain(): void {
    // Not `disabled`: the button would lose the focus, and screen readers could not read the time that is left.
    if (again.hidden || again.ariaDisabled === 'true' || !tools.isFirstPress()) return;
    again.hidden = true;
    hint.hidden = true;
    void channel.retry(messageId);
    onSent();
  }
  function wait(seconds: number): void {
    again.ariaDisabled = seconds > 0 ? 'true' : null;
    setText(again, seconds > 0 ? fill(words.askAgainIn, { seconds }) : words.askAgain);
    if (seconds > 0) setTimeout(() => again.isConnected && wait(seconds - 1), 1_000);
  }
  return {
    element,
    /** Shows the error of another state of the answer. */
    update(message: ChannelMessage): void {
      const { error, metadata } = message;
      element.hidden = error === undefined;
      messageId = message.id;
      if (error === undefined || error === shown) return;
      shown = error;
      const isPartial = textOf(message) !== '';
      setText(why, isPartial ? fill(words.incomplete, { error: error.message }) : error.message);
      const requestId = error.requestId ?? metadata.requestId;
      idRow.hidden = requestId === undefined;
      setText(id, requestId ?? '');
      wait(Math.ceil(error.retryAfter ?? 0));
    },
  };
}
