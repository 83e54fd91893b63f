import { textOf } from '../channel/channel-state.ts';
import type { Channel, ChannelSnapshot } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';
import { attachments, type TakenFiles } from './attachments.ts';
import type { Looks } from './avatar.ts';
import type { ChatDependencies } from './chat-dependencies.ts';
import { type ChatTools, onlyFirst } from './chat-tools.ts';
import { button, iconButton, newElement, setDisabled, setLabel, setText } from './dom.ts';
import { draftKeeper } from './draft-keeper.ts';
import { mayHelp, showError } from './error-text.ts';
import { icon } from './icons.ts';
import { textField } from './text-field.ts';

/** What the composer needs. */
export interface ComposerDependencies extends Pick<ChatDependencies, 'channel' | 'hasFiles' | 'drafts'> {
  readonly tools: ChatTools;
  /** What stands in it at first. */
  readonly draft: string;
  /** Called before a message is sent; false sends nothing. */
  readonly maySend: () => boolean;
  /** A message was sent. */
  readonly onSent: () => void;
}

const RUNNING: readonly ChannelSnapshot['status'][] = ['submitted', 'streaming', 'reconnecting'];

/** Where the user writes, and the button that sends and then stops. */
export function composer(dependencies: ComposerDependencies) {
  const { tools, channel, hasFiles, maySend, onSent } = dependencies;
  const parts = composerParts(dependencies);
  const { element, note, history, text, files, keeper, run, stop, send: sendButton } = parts;
  const send = sending(dependencies, parts);
  element.addEventListener('submit', (event) => {
    event.preventDefault();
    const written = text.value;
    if (written.trim() === '' && files.isEmpty()) return text.focus();
    if (!tools.isFirstPress() || !maySend()) return;
    if (files.isUploading()) return showError(note, tools, { message: tools.words.uploadsFirst });
    setText(note, '');
    text.value = '';
    keeper.keep();
    text.focus();
    void send(written, files.take());
    onSent();
  });
  if (hasFiles) text.addEventListener('paste', (event) => addFrom(event.clipboardData, event, files.add));
  return {
    element,
    addFiles: files.add,
    clearFiles: files.clear,
    focus: () => text.focus(),
    /** Puts a text of the user into the field, so that it can be changed and sent. */
    edit: parts.edit,
    /** The text that is written and not sent. */
    draft: () => text.value,
    /** Whether nothing is written and nothing attached. */
    isEmpty: () => text.value === '' && files.isEmpty(),
    /** Forgets what was written and attached. */
    clear() {
      text.value = '';
      files.clear();
      files.forget();
    },
    look({ placeholder = tools.words.message }: Looks): void {
      text.placeholder = placeholder;
    },
    /** Shows the buttons that can be used, and an error that belongs to no message. */
    update(snapshot: ChannelSnapshot): void {
      keeper.update(snapshot);
      const isRunning = isRunningIn(channel);
      run.classList.toggle('running', isRunning);
      stop.hidden = !isRunning;
      setDisabled(sendButton, snapshot.session === null);
      history.update(snapshot, !isRunning);
      const error = errorOutside(snapshot);
      showError(note, tools, error && files.isShown(error) ? undefined : error);
    },
  };
}

function composerParts(dependencies: ComposerDependencies) {
  const { tools, channel, hasFiles, draft } = dependencies;
  const { words } = tools;
  const note = newElement('div', { class: 'why' });
  const history = historyTrouble(tools, channel);
  const { run, stop, send, stopRun } = runButtons(tools, channel);
  const text = textField(tools, { onStop: () => isRunningIn(channel) && stopRun(), onEditLast });
  text.value = draft;
  const keeper = draftKeeper(dependencies, text);
  const focusNext = () => text.focus();
  const files = attachments({ tools, channel, focusNext });
  const picker = hasFiles ? fileButton(words.attach, files.add) : [];
  const keys = newElement('p', { class: 'unseen', id: 'keys' }, words.keys);
  const tray = newElement('div', { class: 'tray' }, picker, keys, run);
  const box = newElement('div', { class: 'box', part: 'box' }, files.element, text, tray);
  // A press anywhere in the box is one into the text.
  box.addEventListener('click', ({ target }) => (target === box || target === tray) && text.focus());
  const attributes = { class: 'composer', part: 'composer', 'aria-label': words.message };
  const element = newElement('form', attributes, history.element, note, box);
  function edit(written: string): void {
    const before = text.value.trim();
    // What is written already stays.
    if (before !== written.trim()) text.value = before === '' ? written : `${text.value}\n\n${written}`;
    keeper.keep();
    text.focus();
    text.setSelectionRange(text.value.length, text.value.length);
  }
  function onEditLast(): void {
    const { messages } = channel.getSnapshot();
    const last = messages.filter((one) => one.role === 'user' && textOf(one) !== '').at(-1);
    if (last) edit(textOf(last));
  }
  return { element, note, history, text, files, keeper, run, stop, send, edit };
}

/** Makes the function that sends a message. What was refused for good comes back, so that it can be changed. */
function sending(
  { channel }: ComposerDependencies,
  { text, files, keeper }: Pick<ReturnType<typeof composerParts>, 'text' | 'files' | 'keeper'>,
) {
  const place = () => `${channel.getSnapshot().session?.user.id} ${channel.id}`;
  return async (written: string, taken: TakenFiles): Promise<void> => {
    const before = place();
    const { parts } = taken;
    const answer = await channel.send(parts.length > 0 ? { text: written, files: [...parts] } : written);
    if (!answer?.error || mayHelp(answer.error)) return;
    if (before !== place() || text.value !== '' || !files.isEmpty()) return;
    text.value = written;
    taken.giveBack();
    keeper.keep();
  };
}

const isRunningIn = (channel: Channel) => RUNNING.includes(channel.getSnapshot().status);

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
  const why = newElement('div', { class: 'why' });
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

/** The buttons Send and Stop, of which one is shown. While an answer comes, Enter alone sends. */
function runButtons({ words }: ChatTools, channel: Channel) {
  const send = newElement(
    'button',
    { type: 'submit', class: 'icon primary', part: 'button send' },
    icon('send'),
  );
  setLabel(send, words.send);
  send.title = words.keys;
  const isFirst = onlyFirst();
  const stopRun = () => {
    if (isFirst()) void channel.stop();
  };
  const stop = iconButton('stop', words.stop, { part: 'stop', onClick: stopRun });
  stop.classList.add('primary');
  stop.hidden = true;
  return { run: newElement('div', { class: 'run' }, stop, send), stop, send, stopRun };
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
  return [iconButton('attach', label, { part: 'attach', onClick: () => input.click() }), input];
}
