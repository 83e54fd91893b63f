import type { Agent } from 'node:http';
import type { Socket } from 'node:net';

/** As much as Node.js reads at once, in bytes. */
const READ_BYTES = 65_536;

/**
 * Has every connection of `agent` read into one buffer of its own (`onread` of `net.Socket`). Otherwise each read takes
 * a new one, and V8 goes through its whole heap for every few dozen MB of them. The HTTP parser copies what it hands
 * over.
 */
export function readInPlace<T extends Agent>(agent: T): T {
  const connect = agent.createConnection;
  agent.createConnection = (options, done) => {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    const callback = (length: number) => {
      // Nobody listens on an idle connection, and what comes there answers no request.
      if (!socket.emit('data', buffer.subarray(0, length))) socket.destroy();
      return true;
    };
    const socket = connect.call(
      agent,
      { ...options, onread: { buffer, callback } } as typeof options,
      done,
    ) as Socket;
    return socket;
  };
  return agent;
}
