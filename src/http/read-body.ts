import type { IncomingMessage } from 'node:http';
import { Problem } from '../errors.ts';
import { CLIENT_LEFT } from './client-left.ts';

export interface BodyOptions {
  readonly maxBytes: number;
  /** How long the whole body may take to arrive, in ms. */
  readonly timeoutMs: number;
}

/**
 * Reads the whole body: returns its bytes at once if all of it is here, as nearly always. It refuses a body that is too
 * large at once, where the body parser of Express first reads all of it.
 * @throws Problem `body_too_large`, `request_timeout`; `CLIENT_LEFT` if the client leaves before the body is whole
 */
export function readBody(req: IncomingMessage, options: BodyOptions): Buffer | Promise<Buffer> {
  return arrivedBody(req, options) ?? arrivingBody(req, options);
}

/** The body if all of it is here already: it needs no timer then, and nobody to listen. */
function arrivedBody(req: IncomingMessage, { maxBytes }: BodyOptions): Buffer | undefined {
  const { complete, destroyed, readableFlowing, readableLength } = req;
  if (!complete || destroyed || readableFlowing !== null || readableLength > maxBytes) return undefined;
  return (req.read() as Buffer | null) ?? undefined;
}

function arrivingBody(req: IncomingMessage, { maxBytes, timeoutMs }: BodyOptions): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const stop = (settle: () => void) => {
      clearTimeout(timer);
      req.off('data', onData).off('end', onEnd).off('close', onClose);
      settle();
    };
    const refuse = (problem: Problem) => stop(() => reject(problem));
    const tooLarge = () => refuse(new Problem('body_too_large', `The body is over ${maxBytes} bytes.`));
    const onData = (chunk: Buffer) => {
      chunks.push(chunk);
      length += chunk.length;
      if (length > maxBytes) tooLarge();
    };
    const onEnd = () =>
      stop(() => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks, length)));
    const onClose = () => stop(() => reject(CLIENT_LEFT));
    const timer = setTimeout(
      () =>
        refuse(
          new Problem('request_timeout', 'The body did not arrive in time.', {
            headers: { Connection: 'close' },
          }),
        ),
      timeoutMs,
    );
    // The request may have closed before, while the session was looked up.
    if (req.destroyed) return onClose();
    if (Number(req.headers['content-length']) > maxBytes) return tooLarge();
    req.on('data', onData).on('end', onEnd).on('close', onClose);
  });
}
