import { connect } from 'node:net';

const OK = 'HTTP/1.1 200 ';
const FIRST_EVENT = '\r\ndata: ';
const LAST_CHUNK = '\r\n0\r\n\r\n';

/** A kept connection that takes one message after the other. */
export interface MessageConnection {
  /**
   * Sends `message`; resolves when its answer is over, with the time from sending to the first byte of an
   * event, in ms. Rejects if the answer is not a stream, or breaks off.
   */
  send(message: string): Promise<number>;
  close(): void;
}

/** Connects to `port` of this machine. */
export function messageConnection(port: number): MessageConnection {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true }).setEncoding('latin1');
  let onData: (data: string) => void = () => {};
  let onFailure: (error: Error) => void = () => {};
  socket.on('data', (data) => onData(data as unknown as string));
  socket.on('error', (error) => onFailure(error));
  socket.on('close', () => onFailure(new Error('the connection was closed')));
  return {
    send: (message) =>
      new Promise((resolve, reject) => {
        let received = '';
        let firstEventAt: number | undefined;
        onFailure = reject;
        onData = (data) => {
          received += data;
          if (!received.startsWith(OK)) return reject(new Error(`answered: ${received}`));
          if (firstEventAt === undefined && received.includes(FIRST_EVENT)) firstEventAt = performance.now();
          if (firstEventAt !== undefined && received.endsWith(LAST_CHUNK)) resolve(firstEventAt - sentAt);
        };
        const sentAt = performance.now();
        socket.write(message);
      }),
    close: () => socket.destroy(),
  };
}
