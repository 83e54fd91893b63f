import type { Channel, ChannelSnapshot } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';
import { attachments } from './attachments.ts';
import { type ChatTools, onlyFirst } from './chat-tools.ts';
import { button, newElement, setText } from './dom.ts';
import { showError } from './error-text.ts';

/** What the composer needs. */
export interface ComposerDependencies {
  readonly tools: ChatTools;
  readonly channel: Channel;
  readonly hasFiles: boolean;
  /** What stands in it at first. */
  readonly draft: string;
  /** Called before a message is sent; false sends nothing. */
  readonly maySend: () => boolean;
  /** A message was sent. */
  readonly onSent: () => void;
}

const RUNNING: readonly ChannelSnapshot['status'][] = ['submitted', 'streaming', 'reconnecting'];

/** Where the user writes, and the buttons Send and Stop. */
export function composer({ tools, channel, hasFiles, draft, maySend, onSent }: ComposerDependencies) {
  const { words } = tools;
  const note = newElement('p', { class: 'why' });
  const history = historyTrouble(tools, channel);
  const text = textField(tools);
  text.value = draft;
  const stop = stopButton(words.stop, channel);
  const focus = () => text.focus();
  const files = attachments({ tools, channel, focusNext: focus });
  const picker = hasFiles ? fileButton(words.attach, files.add) : [];
  const tray = trayOf(tools, picker, stop);
  const attributes = { class: 'composer', part: 'composer', 'aria-label': words.message };
  const element = newElement('form', attributes, history.element, note, files.element, text, tray);

  element.addEventListener('submit', (event) => {
    event.preventDefault();
    const written = text.value;
    if (written.trim() === '' && files.isEmpty()) return text.focus();
    if (!tools.isFirstPress() || !maySend()) return;
    if (files.isUploading()) return showError(note, tools, { message: words.uploadsFirst });
    setText(note, '');
    text.value = '';
    text.focus();
    const sent = files.take();
    void channel.send(sent.length > 0 ? { text: written, files: sent } : written);
    onSent();
  });
  if (hasFiles) text.addEventListener('paste', (event) => addFrom(event.clipboardData, event, files.add));
  return {
    element,
    addFiles: files.add,
    clearFiles: files.clear,
    focus,
    /** The text that is written and not sent. */
    draft: () => text.value,
    /** Whether nothing is written and nothing attached. */
    isEmpty: () => text.value === '' && files.isEmpty(),
    /** Forgets what was written and attached. */
    clear() {
      text.value = '';
      files.clear();
    },
    /** Shows the buttons that can be used, and an error that belongs to no message. */
    update(snapshot: ChannelSnapshot): void {
      stop.hidden = !RUNNING.includes(snapshot.status);
      history.update(snapshot, stop.hidden);
      const error = errorOutside(snapshot);
      showError(note, tools, error && files.isShown(error) ? undefined : error);
    },
  };
}

/** The error of a call that belongs to no message and not to the history. */
function errorOutside(snapshot: ChannelSnapshot): RelayError | undefined {
  const { error, failedHistory } = snapshot;
  return error === failedHistory?.error ? undefined : unlessInMessage(snapshot, error);
}

/** The error, unless a message shows it. The error of a message can be another object, with this one as its `cause`. */
function unlessInMessage({ messages }: ChannelSnapshot, error?: RelayError): RelayError | undefined {
  const isShown = messages.some((one) => error && [one.error, one.error?.cause].includes(error));
  return isShown ? undefined : error;
}

/** Why the history is missing, and a button that loads it again. */
function historyTrouble(tools: ChatTools, channel: Channel) {
  const why = newElement('p', { class: 'why' });
  const again = button(tools.words.tryAgain, 'try-again', () =>
    channel.getSnapshot().failedHistory?.loadAgain(),
  );
  const element = newElement('div', { class: 'trouble', part: 'error' }, why, again);
  return {
    element,
    update(snapshot: ChannelSnapshot, mayLoad: boolean): void {
      const { failedHistory: failed } = snapshot;
      element.hidden = !failed;
      again.hidden = !mayLoad;
      showError(why, tools, unlessInMessage(snapshot, failed?.error));
    },
  };
}

/** The row of buttons below the text. */
function trayOf({ words }: ChatTools, picker: readonly Node[], stop: Node): HTMLElement {
  const keys = newElement('p', { class: 'note', id: 'keys' }, words.keys);
  const send = newElement('button', { type: 'submit', part: 'button send' }, words.send);
  return newElement(
    'div',
    { class: 'tray' },
    ...picker,
    keys,
    newElement('div', { class: 'run' }, stop, send),
  );
}

function stopButton(label: string, channel: Channel): HTMLButtonElement {
  const isFirst = onlyFirst();
  return button(label, 'stop', () => {
    if (isFirst()) void channel.stop();
  });
}

/** Where the user writes. Enter sends. */
function textField({ words }: ChatTools): HTMLTextAreaElement {
  const text = newElement('textarea', {
    ...{ rows: '1', part: 'input', dir: 'auto', enterkeyhint: 'send' },
    ...{ 'aria-label': words.message, placeholder: words.message, 'aria-describedby': 'keys' },
  });
  text.addEventListener('keydown', (event) => {
    // An Enter that ends the composition of a character (IME) does not send.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    text.form?.requestSubmit();
  });
  return text;
}

/** Takes the files of a drop or of a paste, if there are any. */
export function addFrom(data: DataTransfer | null, event: Event, add: (files: Iterable<File>) => void): void {
  if (!data?.files.length) return;
  event.preventDefault();
  add([...data.files]);
}

function fileButton(label: string, add: (files: Iterable<File>) => void): HTMLElement[] {
  const input = newElement('input', { type: 'file', multiple: '', hidden: '' });
  input.addEventListener('change', () => {
    add([...(input.files ?? [])]);
    // So that the same file can be chosen again.
    input.value = '';
  });
  return [button(label, 'attach', () => input.click()), input];
}
