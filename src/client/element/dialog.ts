import { button, newElement } from './dom.ts';

/** What a dialog asks. */
export interface Question {
  readonly title: string;
  /** What the dialog says, or asks to fill in. */
  readonly content: readonly (Node | string)[];
  /** The text of the button that says yes, and of the one that closes the dialog. */
  readonly yes: string;
  readonly no: string;
  /** Whether what is done cannot be taken back. */
  readonly isDanger?: boolean;
}

/** Closes a dialog inside `parent`, which says no. */
export function closeDialog(parent: ParentNode): void {
  parent.querySelector('dialog')?.close();
}

/**
 * Asks in a dialog inside `parent`, and resolves with whether the user has said yes. The Escape key, or a dialog that is
 * removed from the page, says no. The focus goes back to where it was. A `confirm()` is blocked in a frame of another
 * origin.
 */
export function askIn(parent: ParentNode & Node, question: Question): Promise<boolean> {
  const { title, content, yes, no, isDanger = false } = question;
  const heading = newElement('h2', {}, title);
  const accept = newElement('button', { type: 'submit', part: 'button yes', value: 'yes' }, yes);
  accept.classList.toggle('danger', isDanger);
  const reject = button(no, 'no', () => dialog.close());
  const form = newElement('form', { method: 'dialog' }, heading, ...content);
  form.append(newElement('div', { class: 'choice' }, reject, accept));
  const dialog = newElement('dialog', { part: 'dialog', 'aria-label': title }, form);
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    parent.append(dialog);
    dialog.showModal();
  });
}
