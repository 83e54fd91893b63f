import type { Channel, FilePart } from '../channel-types.ts';
import { button, type ChatTools, setText } from './chat-tools.ts';
import { newElement } from './new-element.ts';
import { fill } from './words.ts';

/** What attachments need. `focusNext` gives the focus a place when a file's button is gone. */
export interface AttachmentParts {
  readonly tools: ChatTools;
  readonly channel: Pick<Channel, 'upload' | 'getSnapshot'>;
  readonly focusNext: () => void;
}

interface Attachment {
  readonly row: HTMLElement;
  readonly controller: AbortController;
  /** Undefined until it is uploaded. */
  part?: FilePart | undefined;
}

/** The files for the next message. */
export function attachments({ tools, channel, focusNext }: AttachmentParts) {
  const { words, announce } = tools;
  const element = newElement('ul', { class: 'files', part: 'files', 'aria-label': words.files });
  let all: Attachment[] = [];
  const remove = (one: Attachment) => {
    one.controller.abort();
    one.row.remove();
    all = all.filter((other) => other !== one);
  };

  async function add(file: File): Promise<void> {
    const { row, state } = fileRow(file, tools, () => {
      remove(one);
      focusNext();
    });
    const one: Attachment = { row, controller: new AbortController() };
    all.push(one);
    element.append(row);
    const { signal } = one.controller;
    const onProgress = (part: number) =>
      setText(state, fill(words.uploading, { percent: Math.round(part * 100) }));
    one.part = await channel.upload(file, { signal, onProgress });
    if (signal.aborted) return;
    const error = one.part ? undefined : (channel.getSnapshot().error?.message ?? '');
    if (error !== undefined) all = all.filter((other) => other !== one);
    row.dataset.state = error === undefined ? 'done' : 'error';
    setText(state, error ?? '');
    const said = error === undefined ? words.attached : words.notUploaded;
    announce(fill(said, { file: file.name, error: error ?? '' }));
  }
  const empty = () => {
    element.replaceChildren();
    return all.splice(0);
  };
  return {
    element,
    add: (files: Iterable<File>) => {
      for (const file of files) void add(file);
    },
    isEmpty: () => all.length === 0,
    isUploading: () => all.some(({ part }) => part === undefined),
    /** The uploaded files. They are no longer attached. */
    take: () => empty().flatMap(({ part }) => part ?? []),
    /** Ends all uploads. */
    clear() {
      for (const { controller } of empty()) controller.abort();
    },
  };
}

function fileRow({ name }: File, { words }: ChatTools, onRemove: () => void) {
  const state = newElement('span', { class: 'note' }, fill(words.uploading, { percent: 0 }));
  const removal = button('×', 'remove', onRemove);
  removal.ariaLabel = fill(words.remove, { file: name });
  const row = newElement('li', {}, newElement('span', { dir: 'auto' }, name), ' ', state, removal);
  return { row, state };
}
