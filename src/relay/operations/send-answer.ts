import type { IncomingMessage, ServerResponse } from 'node:http';
import { type FailureNotes, Problem } from '../../errors.ts';
import { freeBytes } from '../../http/body.ts';
import { breakOff, CLIENT_LEFT } from '../../http/client-connection.ts';
import type { CarriedStream } from '../../http/locals.ts';
import { type TransferTimes, transferTimers } from './transfer-timers.ts';

interface SendBodyOptions {
  readonly res: ServerResponse;
  readonly signal: AbortSignal;
  readonly log: FailureNotes;
  /** How long the client may take nothing, and how long it may take for the whole body. */
  readonly times: TransferTimes;
}

/** An answer is written in pieces of this size, so that it shows whether the client reads. */
const PIECE_BYTES = 65_536;

/**
 * Ends the answer with a whole body, and waits until the operating system has taken all of it: until then it is held in
 * memory. The headers of `res` are set. If it throws, `res` is not complete, and must be destroyed.
 * @throws `CLIENT_LEFT` if the client reads too slowly; the reason of `signal`
 */
export async function sendBody(body: Buffer, { res, signal, log, times }: SendBodyOptions): Promise<void> {
  signal.throwIfAborted();
  const taken = Promise.withResolvers<void>();
  const stop = () => taken.reject(signal.reason);
  const cut = () => {
    log.outcome ??= 'client_stalled';
    taken.reject(CLIENT_LEFT);
    breakOff(res);
  };
  const timers = transferTimers(times, cut);
  signal.addEventListener('abort', stop, { once: true });
  res.once('finish', taken.resolve);
  try {
    if (body.length > 0) res.setHeader('Content-Length', body.length);
    writePieces(body, res, timers.moved);
    await taken.promise;
  } finally {
    timers.stop();
    signal.removeEventListener('abort', stop);
  }
}

/** Calls `onTaken` whenever the operating system has taken what was written so far. */
function writePieces(body: Buffer, res: ServerResponse, onTaken: () => void): void {
  let at = 0;
  const writeOn = () => {
    while (at + PIECE_BYTES < body.length) {
      const piece = body.subarray(at, at + PIECE_BYTES);
      at += PIECE_BYTES;
      if (!res.write(piece)) return void res.once('drain', onDrain);
    }
    res.end(body.subarray(at));
  };
  const onDrain = () => {
    onTaken();
    writeOn();
  };
  writeOn();
}

interface PipeFileOptions {
  readonly res: ServerResponse;
  readonly signal: AbortSignal;
  /** Counts what is sent to the client. */
  readonly stream: CarriedStream;
  readonly log: FailureNotes;
  /** How long no byte may be sent, and how long all may take. */
  readonly times: TransferTimes;
}

/**
 * Passes the body of `answer` on as it arrives; the headers of `res` are set. If it throws, `res` is not complete, and
 * must be destroyed.
 * @throws Problem `upstream_stream_broken`; `CLIENT_LEFT` if the client does not read; the reason of `signal`
 */
export async function pipeFile(answer: IncomingMessage, options: PipeFileOptions): Promise<void> {
  const { res, signal, stream, log, times } = options;
  // The pipeline of Node.js would destroy `res` before the reason is known.
  const piped = Promise.withResolvers<void>();
  const cut = () => {
    if (!res.writableNeedDrain) return piped.reject(brokenOff('ETIMEDOUT'));
    log.outcome ??= 'client_stalled';
    piped.reject(CLIENT_LEFT);
    breakOff(res);
  };
  const timers = transferTimers(times, cut);
  answer.on('data', (bytes: Buffer) => {
    timers.moved();
    stream.firstByteAt ??= performance.now();
    stream.bytes += bytes.length;
    if (!res.write(bytes, () => freeBytes(bytes))) answer.pause();
  });
  answer.once('end', () => res.end());
  res.on('drain', () => answer.resume());
  answer.once('close', () => answer.complete || piped.reject(brokenOff('ECONNRESET')));
  res.once('finish', piped.resolve);
  signal.addEventListener('abort', () => piped.reject(signal.reason), { once: true });
  if (signal.aborted) piped.reject(signal.reason);
  if (answer.destroyed && !answer.complete) piped.reject(brokenOff('ECONNRESET'));
  try {
    res.flushHeaders();
    await piped.promise;
  } finally {
    timers.stop();
    answer.destroy();
  }
}

function brokenOff(cause: string): Problem {
  return new Problem('upstream_stream_broken', 'The file of the bot service broke off.', { cause });
}
