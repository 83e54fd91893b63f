import { textOf } from '../channel/channel-state.ts';
import type { ChannelMessage } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';
import type { RowDependencies } from './chat-tools.ts';
import { button, isDisabled, newElement } from './dom.ts';
import { aroundError, errorDetails, errorPieces, mayHelp } from './error-text.ts';
import { countdown, timeLeft } from './time-text.ts';

/** The seconds that are left of the `retryAfter` of each error. They count on if the row is made again. */
const waits = new WeakMap<RelayError, () => number>();

function waitOf(error: RelayError): () => number {
  const left = waits.get(error) ?? timeLeft(error.retryAfter ?? 0);
  waits.set(error, left);
  return left;
}

/** Why an answer is not complete, and a button that asks for it again if that may help. */
export function answerTrouble({ tools, channel, onSent }: RowDependencies) {
  const { words } = tools;
  const why = newElement('p', { class: 'why' });
  const again = button(words.regenerate, 'regenerate', regenerate);
  const draw = countdown(again, tools, { label: words.regenerate, waiting: words.regenerateIn });
  const more = newElement('div', {});
  const element = newElement('div', { class: 'trouble', part: 'error' }, why, again, more);
  element.hidden = true;
  let messageId = '';
  let shown: ChannelMessage['error'];

  function regenerate(): void {
    if (again.hidden || isDisabled(again) || !tools.isFirstPress()) return;
    again.hidden = true;
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
      const { code, status, message: own } = error;
      const requestId = error.requestId ?? metadata.requestId;
      more.replaceChildren(...errorDetails(tools, { code, status, message: own, requestId }));
      again.hidden = !mayHelp(error);
      draw(waitOf(error));
    },
  };
}
