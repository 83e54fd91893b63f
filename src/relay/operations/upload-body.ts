import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { Problem } from '../../errors.ts';
import { CLIENT_LEFT } from '../../http/client-connection.ts';
import { requireMediaType } from '../../http/media-type.ts';
import { type FormWriterOptions, formWriter, tooLarge } from './form-writer.ts';
import { invalidForm } from './part-head.ts';
import { type TransferTimes, transferTimers } from './transfer-timers.ts';
import { type UploadParts, uploadParts } from './upload-parts.ts';

export interface UploadOptions extends FormWriterOptions {
  /** As `uploadBoundary` returns it. */
  readonly boundary: string;
  /** How long no byte may come or go, and how long all may take. */
  readonly times: TransferTimes;
}

/** A form that is passed from a client to the bot service. It can be sent once. */
export interface UploadBody {
  readonly contentType: string;
  readonly stream: Readable;
  /** Aborted, with the reason, when the form cannot be used; then nothing more of it goes upstream. */
  readonly signal: AbortSignal;
  /** Resolves when the whole form has been handed over; rejects with the reason of `signal`. */
  readonly done: Promise<void>;
  /** How many bytes of the file have been written into `stream`. */
  readonly fileBytes: () => number;
  /** Reads and sends nothing more. */
  close(): void;
}

/** What a form may have besides its file, in bytes: headers, boundaries, the id, and texts around the parts. */
const MAX_BYTES_BESIDES = 65_536;
/** RFC 2046 §5.1.1. */
const BOUNDARY = /; *boundary=(?:"([\w'()+,./:=? -]{1,70})"|([\w'()+,./:=?-]{1,70})) *(?:;|$)/i;

/**
 * Takes only a form that may be small enough. Returns its boundary.
 * @throws Problem `unsupported_media_type`, `invalid_form` or `body_too_large`
 */
export function uploadBoundary(headers: IncomingHttpHeaders, maxBytes: number): string {
  requireMediaType(headers, 'multipart/form-data');
  const [found, quoted, plain = ''] = BOUNDARY.exec(headers['content-type'] ?? '') ?? [];
  if (found === undefined) throw invalidForm('The form has no usable boundary.');
  if (Number(headers['content-length']) > maxBytes + MAX_BYTES_BESIDES) throw tooLarge(maxBytes);
  return quoted ?? plain;
}

/**
 * Reads the client's form as it arrives, and writes it anew, with a boundary of its own. The closing boundary goes only
 * when the whole form has been accepted.
 */
export function uploadBody(req: IncomingMessage, options: UploadOptions): UploadBody {
  const { boundary, times } = options;
  const aborted = new AbortController();
  const { stream, contentType, fileBytes, ...out } = formWriter(options);
  let isAccepted = false;
  const parts = uploadParts(boundary, {
    ...out,
    end() {
      out.end();
      isAccepted = true;
      reading.stop();
    },
    refused: abort,
    drain: () => void req.resume(),
  });
  const timers = transferTimers(times, onLate);
  const reading = readForm(req, parts, { ...options, refused: abort, received: timers.moved });

  function abort(reason: unknown): void {
    if (stream.readableEnded || aborted.signal.aborted) return;
    reading.stop();
    timers.stop();
    parts.close();
    stream.destroy();
    aborted.abort(reason);
  }
  function onLate(): void {
    abort(isAccepted || stream.writableNeedDrain ? notTaken() : notArrived());
  }

  stream.on('drain', () => {
    timers.moved();
    parts.resumeFile();
  });
  reading.start();
  return {
    ...{ contentType, stream, fileBytes, signal: aborted.signal },
    done: handedOver(stream, aborted.signal, timers.stop),
    close: () => abort(CLOSED),
  };
}

interface ReadFormOptions {
  readonly maxBytes: number;
  /** Called for all bytes that come. */
  readonly received: () => void;
  readonly refused: (reason: unknown) => void;
}

/** Hands the bytes of the form over to `parts`, as many as its file and the rest of the form may have. */
function readForm(req: IncomingMessage, parts: UploadParts, options: ReadFormOptions) {
  const { maxBytes, received, refused } = options;
  let length = 0;
  const onData = (bytes: Buffer) => {
    received();
    length += bytes.length;
    if (length > maxBytes + MAX_BYTES_BESIDES) refused(tooLarge(maxBytes));
    else if (!parts.write(bytes)) req.pause();
  };
  const onClose = () => {
    if (!req.complete) refused(CLIENT_LEFT);
  };
  return {
    start() {
      if (req.destroyed) onClose();
      else req.on('data', onData).on('end', parts.end).on('close', onClose);
    },
    stop: () => void req.off('data', onData).off('end', parts.end).off('close', onClose),
  };
}

const CLOSED = new Error('the upload was closed');

/** Resolves when all of `stream` has been read, after `onEnd`; rejects with the reason of `signal`. */
function handedOver(stream: Readable, signal: AbortSignal, onEnd: () => void): Promise<void> {
  const done = new Promise<void>((resolve, reject) => {
    stream.once('end', () => {
      onEnd();
      resolve();
    });
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    if (signal.aborted) reject(signal.reason);
  });
  // No unhandled rejection for callers that use only the signal, which has the same reason.
  done.catch(() => {});
  return done;
}

function notArrived(): Problem {
  return new Problem('request_timeout', 'The file did not arrive in time.', {
    headers: { Connection: 'close' },
  });
}

/** The problem of a form that the bot service does not read. */
function notTaken(): Problem {
  return new Problem('upstream_timeout', 'The bot service did not take the file in time.');
}
