import type { FilePart } from '../channel/channel-types.ts';
import { newElement } from './dom.ts';
import { icon } from './icons.ts';

/** The addresses of the pictures that this page has uploaded, by their ids at the bot service. */
const shown = new Map<FilePart['blobId'], string>();

/** The pictures of one chat. They are in the browser alone, until the chat is left or the page is loaded again. */
export function thumbnails() {
  const own = new Set<string>();
  return {
    /** A new address of a file that is a picture; undefined for another file. */
    add(file: File): string | undefined {
      if (!file.type.startsWith('image/')) return undefined;
      const url = URL.createObjectURL(file);
      own.add(url);
      return url;
    },
    /** The file was uploaded: the message with it shows the picture, too. */
    keep(url: string | undefined, { blobId }: FilePart): void {
      if (url) shown.set(blobId, url);
    },
    /** Frees the memory of this picture, or of all. */
    forget(...urls: readonly (string | undefined)[]): void {
      for (const url of urls.length > 0 ? urls : own) {
        if (url === undefined) continue;
        URL.revokeObjectURL(url);
        own.delete(url);
        for (const [id, one] of shown) if (one === url) shown.delete(id);
      }
    },
  };
}

/** The picture of a file, or an icon in its place if it is none, or is not in this page. */
export function pictureOf(url: string | undefined): Element {
  if (!url) return icon('file');
  const picture = newElement('img', { src: url, alt: '', class: 'thumbnail' });
  // A page's policy may not allow it.
  picture.addEventListener('error', () => picture.replaceWith(icon('file')));
  return picture;
}

/** The address of the picture of a file in a message; undefined if it is not in this page. */
export const thumbnailOf = ({ blobId }: FilePart): string | undefined => shown.get(blobId);
