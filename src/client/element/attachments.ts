import type { Channel, FilePart } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';
import type { ChatTools } from './chat-tools.ts';
import { iconButton, newElement, setText } from './dom.ts';
import { aroundError, errorPieces } from './error-text.ts';
import { pictureOf, thumbnails } from './thumbnails.ts';
import { fill } from './words/words.ts';

/** What attachments need. `focusNext` moves the focus when the button of a file is removed. */
export interface AttachmentsDependencies {
  readonly tools: ChatTools;
  readonly channel: Pick<Channel, 'upload'>;
  readonly focusNext: () => void;
}

interface Attachment {
  readonly controller: AbortController;
  readonly row: HTMLElement;
  /** Undefined until it is uploaded. */
  part?: FilePart | undefined;
}

/** Files that were taken out, to send them. */
export interface TakenFiles {
  readonly parts: readonly FilePart[];
  /** Puts them back: they were not sent. */
  readonly giveBack: () => void;
}

/** The errors that are shown beside a file. */
const reasons = new WeakSet<RelayError>();

/** The files for the next message. */
export function attachments({ tools, channel, focusNext }: AttachmentsDependencies) {
  const { words } = tools;
  const element = newElement('ul', { class: 'files', part: 'files', 'aria-label': words.files });
  const all = new Set<Attachment>();
  const pictures = thumbnails();
  async function add(file: File): Promise<void> {
    const url = pictures.add(file);
    const { row, state } = fileRow(file.name, { tools, url }, () => {
      one.controller.abort();
      row.remove();
      all.delete(one);
      pictures.forget(url);
      focusNext();
    });
    const one: Attachment = { controller: new AbortController(), row };
    all.add(one);
    element.append(row);
    const { signal } = one.controller;
    const onProgress = (part: number) =>
      setText(state, fill(words.uploading, { percent: Math.round(part * 100) }));
    const { onError, end } = telling(file, tools, state);
    one.part = await channel.upload(file, { signal, onProgress, onError });
    if (signal.aborted) return;
    row.dataset.state = one.part ? 'done' : 'error';
    if (one.part) pictures.keep(url, one.part);
    else all.delete(one);
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
    add: (files: Iterable<File>) => [...files].forEach((file) => void add(file)),
    /** Whether `error` is shown beside a file. */
    isShown: (error: RelayError) => reasons.has(error),
    isEmpty: () => all.size === 0,
    isUploading: () => [...all].some(({ part }) => part === undefined),
    /** Takes the uploaded files out, to send them. */
    take(): TakenFiles {
      const taken = empty().filter(({ part }) => part);
      return {
        parts: taken.flatMap(({ part }) => part ?? []),
        giveBack() {
          for (const one of taken) all.add(one);
          element.append(...taken.map(({ row }) => row));
        },
      };
    },
    /** Ends all uploads. */
    clear() {
      for (const { controller } of empty()) controller.abort();
    },
    /** Forgets the pictures of files that were sent, too. */
    forget: () => pictures.forget(),
  };
}

/** Says in `state`, and aloud, that the file is uploaded, or why it is not. */
function telling({ name: file }: File, tools: ChatTools, state: HTMLElement) {
  const { words, announce } = tools;
  let isTold = false;
  return {
    onError(error: RelayError): void {
      isTold = true;
      reasons.add(error);
      state.replaceChildren(...errorPieces(tools, error));
      state.title = [error.message, error.requestId].filter(Boolean).join(' · ');
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

interface FileRowDependencies extends Pick<AttachmentsDependencies, 'tools'> {
  /** The address of its picture. */
  readonly url: string | undefined;
}

function fileRow(name: string, { tools, url }: FileRowDependencies, onRemove: () => void) {
  const { words } = tools;
  const state = newElement('span', { class: 'note' }, fill(words.uploading, { percent: 0 }));
  const label = fill(words.remove, { file: name });
  const removal = iconButton('close', label, { part: 'remove', onClick: onRemove });
  const title = newElement('span', { class: 'name', dir: 'auto', title: name }, name);
  return { row: newElement('li', {}, pictureOf(url), title, state, removal), state };
}
