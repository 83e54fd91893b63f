import { randomUUID } from 'node:crypto';
import type { Sql } from '../settings/sql.ts';

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

/** The uploaded files of all channels, which the numbers of their rows name. */
export interface FileTable {
  /** Adds a file. The oldest files of all channels are forgotten if there are too many, or if they are too large. */
  add(channel: number, file: UploadedFile): StoredFile;
  /** The file with this id, if it belongs to the channel. */
  find(channel: number, id: string): StoredFile | undefined;
  /** The newest file of the channel with this name. */
  findByName(channel: number, name: string): StoredFile | undefined;
}

export interface FileBounds {
  readonly maxFiles: number;
  /** The bytes of all files. */
  readonly maxFileBytes: number;
}

type FileRow = { id: string; name: string; type: string; bytes: Uint8Array<ArrayBuffer> };

const COLUMNS = 'id, name, type, bytes';

/** The files in a database, within these bounds. */
export function filesIn(sql: Sql, { maxFiles, maxFileBytes }: FileBounds): FileTable {
  const isTooMuch = () => {
    const all = sql.get<{ count: number; size: number | null }>(
      'SELECT count(*) AS count, sum(size) AS size FROM files',
    );
    return (all?.count ?? 0) > maxFiles || (all?.size ?? 0) > maxFileBytes;
  };
  return {
    add(channel, { name, type, bytes }) {
      const id = randomUUID();
      sql.run(
        'INSERT INTO files (id, channel_id, name, type, size, bytes) VALUES (?, ?, ?, ?, ?, ?)',
        ...[id, channel, name, type, bytes.length, bytes],
      );
      while (isTooMuch()) sql.run('DELETE FROM files WHERE position = (SELECT min(position) FROM files)');
      return { id, name, type, bytes };
    },
    find: (channel, id) =>
      fileOf(sql.get<FileRow>(`SELECT ${COLUMNS} FROM files WHERE channel_id = ? AND id = ?`, channel, id)),
    findByName: (channel, name) =>
      fileOf(
        sql.get<FileRow>(
          `SELECT ${COLUMNS} FROM files WHERE channel_id = ? AND name = ? ORDER BY position DESC LIMIT 1`,
          ...[channel, name],
        ),
      ),
  };
}

function fileOf(row: FileRow | undefined): StoredFile | undefined {
  return row && { ...row, bytes: Buffer.from(row.bytes.buffer, row.bytes.byteOffset, row.bytes.byteLength) };
}
