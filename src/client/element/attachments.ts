import type { Channel, FilePart } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';
import type { ChatTools } from './chat-tools.ts';
import { button, newElement, setText } from './dom.ts';
import { aroundError, errorPieces, requestPieces } from './error-text.ts';
import { fill } from './words/words.ts';

/** What attachments need. `focusNext` moves the focus when the button of a file is removed. */
export interface AttachmentsDependencies {
  readonly tools: ChatTools;
  readonly channel: Pick<Channel, 'upload'>;
  readonly focusNext: () => void;
}

interface Attachment {
  readonly controller: AbortController;
  /** Undefined until it is uploaded. */
  part?: FilePart | undefined;
}

/** The errors that are shown beside a file. */
const reasons = new WeakSet<RelayError>();

/** The files for the next message. */
export function attachments({ tools, channel, focusNext }: AttachmentsDependencies) {
  const { words } = tools;
  const element = newElement('ul', { class: 'files', part: 'files', 'aria-label': words.files });
  const all = new Set<Attachment>();
  async function add(file: File): Promise<void> {
    const { row, state } = fileRow(file, tools, () => {
      one.controller.abort();
      row.remove();
      all.delete(one);
      focusNext();
    });
    const one: Attachment = { controller: new AbortController() };
    all.add(one);
    element.append(row);
    const { signal } = one.controller;
    const onProgress = (part: number) =>
      setText(state, fill(words.uploading, { percent: Math.round(part * 100) }));
    const { onError, end } = telling(file, tools, state);
    one.part = await channel.upload(file, { signal, onProgress, onError });
    if (signal.aborted) return;
    row.dataset.state = one.part ? 'done' : 'error';
    if (!one.part) all.delete(one);
    end(one.part !== undefined);
  }
  const empty = () => {
    element.replaceChildren();
    const before = [...all];
    all.clear();
    return before;
  };
  return {
    element,
    add: (files: Iterable<File>) => {
      for (const file of files) void add(file);
    },
    /** Whether `error` is shown beside a file. */
    isShown: (error: RelayError) => reasons.has(error),
    isEmpty: () => all.size === 0,
    isUploading: () => [...all].some(({ part }) => part === undefined),
    /** Takes the uploaded files out, to send them. */
    take: () => empty().flatMap(({ part }) => part ?? []),
    /** Ends all uploads. */
    clear() {
      for (const { controller } of empty()) controller.abort();
    },
  };
}

/** Says in `state`, and aloud, that the file is uploaded, or why it is not. */
function telling({ name: file }: File, tools: ChatTools, state: Element) {
  const { words, announce } = tools;
  let isTold = false;
  return {
    onError(error: RelayError): void {
      isTold = true;
      reasons.add(error);
      state.replaceChildren(...errorPieces(tools, error), ...requestPieces(tools, error));
      announce(errorPieces(tools, error, aroundError(words.notUploaded, { file })));
    },
    end(isUploaded: boolean): void {
      // `onError` has told already. It is not called if the user has left.
      if (isTold) return;
      const text = fill(isUploaded ? words.attached : words.notUploaded, { file, error: '' });
      setText(state, isUploaded ? '' : text);
      announce(text);
    },
  };
}

function fileRow({ name }: File, { words }: ChatTools, onRemove: () => void) {
  const state = newElement('span', { class: 'note' }, fill(words.uploading, { percent: 0 }));
  const removal = button('×', 'remove', onRemove);
  removal.setAttribute('aria-label', fill(words.remove, { file: name }));
  const row = newElement('li', {}, newElement('span', { dir: 'auto' }, name), ' ', state, removal);
  return { row, state };
}
