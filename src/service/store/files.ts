import { randomUUID } from 'node:crypto';
import type { Database } from '../settings/database.ts';

export interface UploadedFile {
  readonly name: string;
  /** The media type that the sender gave it. */
  readonly type: string;
  readonly bytes: Buffer;
}

/** A file that was uploaded into a channel. */
export interface StoredFile extends UploadedFile {
  readonly id: string;
}

/** How many files all channels of a database have, and how many bytes these. */
export interface FileBounds {
  readonly maxFiles: number;
  readonly maxFileBytes: number;
}

type FileRow = { id: string; name: string; type: string; bytes: Uint8Array<ArrayBuffer> };

const SELECT = 'SELECT id, name, type, bytes FROM files WHERE channel_id = ?';

/** The uploaded files of a channel. */
export const filesOf = (database: Database, channel: number, { maxFiles, maxFileBytes }: FileBounds) => ({
  /** Adds a file. The oldest files of all channels are forgotten if there are too many, or if they are too large. */
  add({ name, type, bytes }: UploadedFile): StoredFile {
    const id = randomUUID();
    database.run(
      'INSERT INTO files (id, channel_id, name, type, size, bytes) VALUES (?, ?, ?, ?, ?, ?)',
      ...[id, channel, name, type, bytes.length, bytes],
    );
    const isTooMuch = 'SELECT count(*) > ? OR sum(size) > ? AS isTooMuch FROM files';
    while (database.get(isTooMuch, maxFiles, maxFileBytes)?.isTooMuch === 1)
      database.run('DELETE FROM files WHERE position = (SELECT min(position) FROM files)');
    return { id, name, type, bytes };
  },
  find: (id: string) => fileOf(database.get<FileRow>(`${SELECT} AND id = ?`, channel, id)),
  /** The newest file with this name. */
  findByName: (name: string) =>
    fileOf(database.get<FileRow>(`${SELECT} AND name = ? ORDER BY position DESC LIMIT 1`, channel, name)),
});

function fileOf(row: FileRow | undefined): StoredFile | undefined {
  return row && { ...row, bytes: Buffer.from(row.bytes.buffer, row.bytes.byteOffset, row.bytes.byteLength) };
}
