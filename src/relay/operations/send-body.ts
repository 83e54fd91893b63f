import type { ServerResponse } from 'node:http';
import type { FailureNotes } from '../../errors.ts';
import { breakOff, CLIENT_LEFT } from '../../http/client-connection.ts';
import { type TransferTimes, transferTimers } from './transfer-timers.ts';

export interface SendBodyOptions {
  readonly res: ServerResponse;
  readonly signal: AbortSignal;
  readonly log: FailureNotes;
  /** How long the client may take none of it, and how long for all of it. */
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

/** Calls `read` whenever the operating system has taken what was written so far. */
function writePieces(body: Buffer, res: ServerResponse, read: () => void): void {
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
    read();
    writeOn();
  };
  writeOn();
}
