import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';

/** The longest secret that is found if two writes split it, in bytes. */
const LONGEST = 128;

export interface AnswerScan {
  /** Ends the scan; throws if one of the secrets was written to a client. */
  end(): void;
}

/**
 * Scans every byte that a server of this process writes to the clients of its port: heads, bodies, streams, and
 * answers to invalid requests.
 */
export function scanAnswers(port: () => number, secrets: readonly string[]): AnswerScan {
  const shown = new Set<string>();
  const watch = (message: unknown) => {
    const { socket } = message as { socket: Socket };
    if (socket.localPort === port()) watchWrites(socket, secrets, shown);
  };
  subscribe('net.server.socket', watch);
  return {
    end() {
      unsubscribe('net.server.socket', watch);
      const [one] = shown;
      if (one !== undefined) throw new Error(`a secret has shown in an answer: ${one}`);
    },
  };
}

function watchWrites(socket: Socket, secrets: readonly string[], shown: Set<string>): void {
  const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
  let tail = Buffer.alloc(0);
  socket.write = (chunk: string | Uint8Array, ...rest: unknown[]) => {
    const encoding = typeof rest[0] === 'string' ? (rest[0] as BufferEncoding) : 'utf8';
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
    const seam = Buffer.concat([tail, bytes.subarray(0, LONGEST)]);
    for (const secret of secrets) if (seam.includes(secret) || bytes.includes(secret)) shown.add(secret);
    tail = Buffer.from(Buffer.concat([tail, bytes.subarray(-LONGEST)]).subarray(-LONGEST));
    return write(chunk, ...rest);
  };
}
