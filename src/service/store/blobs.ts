import { randomUUID } from 'node:crypto';
import { boundedMap } from './bounded-map.ts';
import type { Channel } from './channel.ts';

export interface UploadedFile {
  readonly name: string;
  /** The media type that the sender gave it. */
  readonly type: string;
  readonly bytes: Buffer;
}

/** A file that was uploaded into a channel. */
export interface Blob extends UploadedFile {
  readonly id: string;
  readonly channel: Channel;
}

/** The uploaded files of all channels. */
export interface Blobs {
  /** Adds a file. The oldest files of all channels are forgotten if there are too many, or if they are too large. */
  add(channel: Channel, file: UploadedFile): Blob;
  /** The file with this id, if it belongs to the channel. */
  find(channel: Channel, id: string): Blob | undefined;
  /** The newest file of the channel with this name. */
  findByName(channel: Channel, name: string): Blob | undefined;
  /** Forgets the files of a channel. */
  forget(channel: Channel): void;
}

const MAX_BLOBS = 200;
const MAX_BYTES = 96 * 1024 * 1024;
const MAX_AGE_MS = 24 * 60 * 60 * 1000;

export function blobs(maxBytes = MAX_BYTES): Blobs {
  let bytes = 0;
  const all = boundedMap<Blob>({
    maxEntries: MAX_BLOBS,
    maxAgeMs: MAX_AGE_MS,
    onLeave: (blob) => {
      bytes -= blob.bytes.length;
    },
  });
  return {
    add(channel, file) {
      const blob = { ...file, id: randomUUID(), channel };
      bytes += blob.bytes.length;
      all.set(blob.id, blob);
      for (const { id } of all.values()) if (bytes > maxBytes) all.delete(id);
      return blob;
    },
    find(channel, id) {
      const blob = all.get(id);
      return blob?.channel === channel ? blob : undefined;
    },
    findByName: (channel, name) =>
      [...all.values()].findLast((blob) => blob.channel === channel && blob.name === name),
    forget(channel) {
      for (const blob of all.values()) if (blob.channel === channel) all.delete(blob.id);
    },
  };
}
