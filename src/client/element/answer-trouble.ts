import { textOf } from '../channel/channel-state.ts';
import type { ChannelMessage } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';
import { copyFrom, type RowDependencies } from './chat-tools.ts';
import { button, isDisabled, newElement, setText } from './dom.ts';
import { aroundError, errorPieces, requestCode } from './error-text.ts';
import { countdown, timeLeft } from './time-text.ts';

/** The seconds that are left of the `retryAfter` of each error. They count on if the row is made again. */
const waits = new WeakMap<RelayError, () => number>();

function waitOf(error: RelayError): () => number {
  const left = waits.get(error) ?? timeLeft(error.retryAfter ?? 0);
  waits.set(error, left);
  return left;
}

/** Why an answer is not complete, its request id for the operator, and when the user can ask again. */
export function answerTrouble({ tools, channel, onSent }: RowDependencies) {
  const { words } = tools;
  const why = newElement('p', { class: 'why' });
  const id = requestCode();
  const copy = button(words.copyId, 'copy-id', () => void copyFrom(copy, id.textContent ?? '', tools));
  const idRow = newElement('p', { class: 'request-id' }, `${words.requestId} `, id, ' ', copy);
  const again = button(words.askAgain, 'ask-again', askAgain);
  const draw = countdown(again, tools, { label: words.askAgain, waiting: words.askAgainIn });
  const hint = newElement('p', { class: 'note' }, words.askAgainHint);
  const element = newElement('div', { class: 'trouble', part: 'error' }, why, idRow, again, hint);
  element.hidden = true;
  let messageId = '';
  let shown: ChannelMessage['error'];

  function askAgain(): void {
    if (again.hidden || isDisabled(again) || !tools.isFirstPress()) return;
    again.hidden = true;
    hint.hidden = true;
    void channel.regenerate(messageId);
    onSent();
  }
  return {
    element,
    /** Shows the error of the answer in its new state. */
    update(message: ChannelMessage): void {
      const { error, metadata } = message;
      element.hidden = error === undefined;
      messageId = message.id;
      if (error === undefined || error === shown) return;
      shown = error;
      const isPartial = textOf(message) !== '';
      why.replaceChildren(
        ...errorPieces(tools, error, aroundError(isPartial ? words.incomplete : '{error}')),
      );
      const requestId = error.requestId ?? metadata.requestId;
      idRow.hidden = requestId === undefined;
      setText(id, requestId ?? '');
      draw(waitOf(error));
    },
  };
}
