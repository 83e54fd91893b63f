import type { RowDependencies } from './chat-tools.ts';
import { button, newElement, setText } from './dom.ts';
import { showError } from './error-text.ts';

/** The most bytes of a comment that the bot service takes. */
const MAX_BYTES = 8_192;

/** A form in which a user can say what is wrong with an answer. `onClose` moves the focus away from it. */
export function commentForm(
  { tools, channel }: Pick<RowDependencies, 'tools' | 'channel'>,
  onClose: () => void,
) {
  const { words } = tools;
  const element = newElement('form', { class: 'comment', part: 'comment' });
  element.hidden = true;
  let messageId = '';
  const close = () => {
    element.hidden = true;
    onClose();
  };
  /** Made when it is needed: most answers get no comment. */
  function fields(): HTMLTextAreaElement {
    const text = newElement('textarea', {
      rows: '2',
      part: 'input',
      dir: 'auto',
      'aria-label': words.comment,
    });
    text.placeholder = words.comment;
    const why = newElement('p', { class: 'why' });
    const send = newElement('button', { type: 'submit', part: 'button send-comment' }, words.send);
    const choice = newElement('div', { class: 'choice' }, button(words.cancel, 'cancel', close), send);
    element.append(text, why, choice);
    element.addEventListener('submit', async (event) => {
      event.preventDefault();
      const comment = text.value.trim();
      setText(why, '');
      if (new TextEncoder().encode(comment).length > MAX_BYTES)
        return showError(why, tools, { message: words.errorLarge });
      if (comment !== '') {
        // What could not be sent stays. The error is shown at the composer.
        if (!(await channel.feedback(messageId, 'BAD', comment))) return;
        tools.announce(words.commentSent);
      }
      text.value = '';
      close();
    });
    element.addEventListener('keydown', ({ key }) => key === 'Escape' && close());
    return text;
  }
  return {
    element,
    /** Asks for a comment about this answer; undefined closes the form. */
    show(id: string | undefined): void {
      element.hidden = id === undefined;
      if (id === undefined) return;
      messageId = id;
      (element.querySelector('textarea') ?? fields()).focus();
    },
  };
}
