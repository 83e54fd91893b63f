import type { Socket } from 'node:net';

/** How much of what has come is parsed at a time, in bytes. One read can hold 3640 requests, a piece 57. */
const PIECE_BYTES = 1024;
const METHODS =
  'GET|POST|OPTIONS|DESCRIBE|ANNOUNCE|SETUP|PLAY|PAUSE|TEARDOWN|GET_PARAMETER|SET_PARAMETER|REDIRECT|RECORD|FLUSH|SOURCE';
/**
 * What Node's parser takes for a request line of HTTP, and is one of RTSP (RFC 2326 §6.1) or of Icecast's ICE; or the
 * end of what has come, if it can become one. No text takes it more than a few steps for each character: two spaces in
 * a row can be read in one way only.
 */
const FOREIGN_LINE = new RegExp(
  `(?:${METHODS}) +[^ \\r\\n]+ +(RTSP|ICE)/|[A-Z_]{1,13}(?: +(?:[^ \\r\\n]+(?: +[A-Z]{0,4})?)?)?$`,
);

export interface ReadingOptions {
  /** Whether what comes is still of interest. */
  readonly isOpen: () => boolean;
  /** Whether the parser has come to the end of a message, or is in the head of the next one. */
  readonly isBetweenMessages: () => boolean;
  /** Called instead of the parser where a request of another protocol than HTTP begins. */
  readonly onForeignProtocol: () => void;
}

/**
 * Hands what comes on a connection, which the HTTP server has taken, to the server's parser piece by piece: the parser
 * goes through all that it is given, whatever becomes of the connection meanwhile, and would turn one read into
 * thousands of requests.
 */
export function readRequests(socket: Socket, options: ReadingOptions): void {
  const { isOpen, isBetweenMessages, onForeignProtocol } = options;
  const [parse] = socket.listeners('data');
  if (parse === undefined) throw new Error('The HTTP server does not read the connection');
  socket.removeAllListeners('data');
  /** What has been parsed of a request line that may be foreign. The parser bounds its length, but for spaces. */
  let line = '';

  socket.on('data', (data: Buffer) => {
    for (let at = 0, end = 0; at < data.length && isOpen(); at = end) {
      // The server waits for its client to read answers; what is put back comes again.
      if (socket.isPaused()) return socket.unshift(data.subarray(at));
      const text = line + data.toString('latin1', at, at + PIECE_BYTES);
      const match = FOREIGN_LINE.exec(text);
      const begin = (match?.index ?? text.length) - line.length;
      end = at + begin;
      if (match === null || begin > 0) {
        line = '';
      } else if (line === '' && !isBetweenMessages()) {
        // A body, which may end with the next byte: the line of a request can begin right behind it.
        end += 1;
      } else {
        if (match[1]) return onForeignProtocol();
        end += match[0].length;
        line = match[0].replaceAll(/ +/g, ' ');
      }
      parse.call(socket, data.subarray(at, end));
    }
  });
}
