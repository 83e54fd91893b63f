import { isUtf8 } from 'node:buffer';
import { Dicer } from '@fastify/busboy';
import { invalidForm, type PartHead, partHead } from './part-head.ts';

/** Gets what stands in a form, as it arrives. What it throws refuses the form. */
export interface PartListener {
  /** A file begins. */
  file(head: PartHead): void;
  /** Bytes of the file. Returns false if no more must come until `resumeFile` is called. */
  bytes(bytes: Buffer): boolean;
  /** The file is whole. A text that stands after it may have come before. */
  fileEnd(): void;
  text(name: string, value: string): void;
  /** The form is whole, with its closing boundary. */
  end(): void;
  /** The form cannot be used. Nothing is called after this. */
  refused(problem: unknown): void;
  /** `write` takes bytes again. */
  drain(): void;
}

/** Takes the bytes of a form. */
export interface UploadParts {
  /** Returns false if no more must come until `drain`. */
  write(bytes: Buffer): boolean;
  /** No more bytes will come. */
  end(): void;
  resumeFile(): void;
  /** Drops everything, and calls nothing more. */
  close(): void;
}

/** No form of one file and one id has more. */
const MAX_PARTS = 2;
const MAX_HEADERS = 8;
/** The longest text of a part, in bytes: an id of 256 characters has at most 768. */
const MAX_TEXT_BYTES = 1024;

interface Reading {
  readonly listener: PartListener;
  /** How many parts have begun, how many of them have had headers, and how many are whole. */
  readonly parts: { begun: number; headed: number; whole: number };
  file?: Dicer.PartStream;
  /** Whether the closing boundary has come. */
  isClosed: boolean;
  /** Whether all bytes have come. */
  hasEnded: boolean;
  /** Whether nothing must be called any more. */
  isOver: boolean;
}

/** Reads a form (`multipart/form-data`, RFC 7578) as it arrives; of its file, it keeps what was not taken yet. */
export function uploadParts(boundary: string, listener: PartListener): UploadParts {
  const parser = new Dicer({ boundary, maxHeaderPairs: MAX_HEADERS });
  const parts = { begun: 0, headed: 0, whole: 0 };
  const reading: Reading = { listener, parts, isClosed: false, hasEnded: false, isOver: false };
  parser.on('part', (part) => guarded(reading, () => readPart(reading, part)));
  parser.on('error', () => refuse(reading, invalidForm('The form has no end.')));
  parser.on('drain', () => listener.drain());
  parser.on('finish', () => {
    reading.isClosed = true;
    atEnd(reading);
    // The parser may wait for a part that has been read; what follows the closing boundary is dropped.
    listener.drain();
  });
  return {
    write: (bytes) => reading.isOver || reading.isClosed || parser.write(bytes),
    end() {
      reading.hasEnded = true;
      if (!reading.isClosed) parser.end();
      atEnd(reading);
    },
    resumeFile: () => void reading.file?.resume(),
    close() {
      reading.isOver = true;
      parser.destroy();
    },
  };
}

function readPart(reading: Reading, part: Dicer.PartStream): void {
  const { parts } = reading;
  parts.begun += 1;
  // `parser` emits the same error.
  part.on('error', () => {});
  if (parts.begun > MAX_PARTS) throw invalidForm('The form has too many parts.');
  part.on('header', (headers) =>
    guarded(reading, () => {
      parts.headed += 1;
      const head = partHead(headers as Parameters<typeof partHead>[0]);
      const onEnd =
        head.fileName === undefined ? readText(reading, part, head) : readFile(reading, part, head);
      part.on('end', () => {
        parts.whole += 1;
        guarded(reading, onEnd);
        atEnd(reading);
      });
    }),
  );
}

function readFile(reading: Reading, part: Dicer.PartStream, head: PartHead): () => void {
  const { listener } = reading;
  if (reading.file) throw invalidForm('The form has two files.');
  reading.file = part;
  listener.file(head);
  part.on('data', (bytes) =>
    guarded(reading, () => {
      if (!listener.bytes(bytes as Buffer)) part.pause();
    }),
  );
  return () => listener.fileEnd();
}

function readText(reading: Reading, part: Dicer.PartStream, { name }: PartHead): () => void {
  let text = Buffer.alloc(0);
  part.on('data', (bytes) =>
    guarded(reading, () => {
      text = Buffer.concat([text, bytes as Buffer]);
      if (text.length > MAX_TEXT_BYTES) throw invalidForm('A text in the form is too long.');
    }),
  );
  return () => {
    if (!isUtf8(text)) throw invalidForm('A text in the form is not UTF-8.');
    reading.listener.text(name, text.toString('utf8'));
  };
}

function atEnd(reading: Reading): void {
  const { begun, headed, whole } = reading.parts;
  if (!reading.isClosed || !reading.hasEnded || reading.isOver) return;
  if (headed < begun) refuse(reading, invalidForm('A part of the form has no headers.'));
  if (whole < begun) return;
  guarded(reading, () => reading.listener.end());
  reading.isOver = true;
}

function guarded(reading: Reading, act: () => void): void {
  if (reading.isOver) return;
  try {
    act();
  } catch (error) {
    refuse(reading, error);
  }
}

function refuse(reading: Reading, problem: unknown): void {
  if (reading.isOver) return;
  reading.isOver = true;
  reading.listener.refused(problem);
}
