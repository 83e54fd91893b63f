import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import { freeBytes } from '../http/body.ts';

/** How many bytes are parsed at a time: they hold at most 57 requests, where all bytes of one read can hold 3640. */
const PIECE_BYTES = 1024;
const METHODS =
  'GET|POST|OPTIONS|DESCRIBE|ANNOUNCE|SETUP|PLAY|PAUSE|TEARDOWN|GET_PARAMETER|SET_PARAMETER|REDIRECT|RECORD|FLUSH|SOURCE';
/** The beginning of a request line at the end of a text. */
const BEGINNING = '[A-Z_]{1,13}(?: +(?:[^ \\r\\n]+(?: +[A-Z]{0,4})?)?)?$';
/**
 * A request line of RTSP (RFC 2326 §6.1) or of Icecast's ICE, which Node's parser takes for HTTP; or the beginning of
 * one at the end of the text. It needs only a few steps for each character, since no text can match in two ways.
 */
const FOREIGN_LINE = new RegExp(`(?:${METHODS}) +[^ \\r\\n]+ +(RTSP|ICE)/|${BEGINNING}`);
const ENDS_IN_BEGINNING = new RegExp(BEGINNING);

export interface FeedOptions {
  /** False once the rest of what arrives is to be dropped. */
  readonly isOpen: () => boolean;
  /** Whether the parser is not in a body: it is at the end of a message, or in the head of the next one. */
  readonly isBetweenMessages: () => boolean;
  /** The latest request if the parser is in its body; undefined if it is in none. */
  readonly inBodyOf: () => { readonly headers: IncomingHttpHeaders } | undefined;
  /** Called instead of the parser where a request of a protocol other than HTTP begins. */
  readonly onForeignProtocol: () => void;
}

/**
 * Gives the bytes of a connection to the parser of the HTTP server in small pieces. The parser always goes through all
 * that it is given, even if the connection is closed meanwhile, and would turn one read into thousands of requests. What
 * is certainly inside a body is given as it comes.
 */
export function feedParser(socket: Socket, options: FeedOptions): void {
  const { isOpen, isBetweenMessages, onForeignProtocol } = options;
  const [parse] = socket.listeners('data');
  if (parse === undefined) throw new Error('The HTTP server does not read the connection');
  // `removeAllListeners` would make the table of listeners several times as large.
  socket.removeListener('data', parse as (data: Buffer) => void);
  /**
   * The parsed part of a request line that may be of another protocol. The parser limits its length, except for spaces.
   */
  let line = '';
  const body = bodyProgress(options.inBodyOf);
  const give = (bytes: Buffer) => {
    parse.call(socket, bytes);
    body.given(bytes.length);
  };

  socket.on('data', (data: Buffer) => {
    for (let at = 0, end = 0; at < data.length && isOpen(); at = end) {
      // The server has paused until its client reads the answers; what is put back is emitted again afterwards.
      if (socket.isPaused()) return socket.unshift(data.subarray(at));
      const inside = line === '' ? Math.min(body.left(), data.length - at) : 0;
      if (inside > PIECE_BYTES) {
        end = at + inside;
        give(data.subarray(at, end));
        // The parser hands over copies of what it finds in a body.
        if (end === data.length) freeBytes(data);
        continue;
      }
      const text = line + data.toString('latin1', at, at + PIECE_BYTES);
      const match = mayBeForeign(text) ? FOREIGN_LINE.exec(text) : null;
      const begin = (match?.index ?? text.length) - line.length;
      end = at + begin;
      if (match === null || begin > 0) {
        line = '';
      } else if (line === '' && !isBetweenMessages()) {
        // In a body, which may end with any byte: a request line can begin directly after it.
        end += 1;
      } else {
        if (match[1]) return onForeignProtocol();
        end += match[0].length;
        line = match[0].replaceAll(/ +/g, ' ');
      }
      give(at === 0 && end === data.length ? data : data.subarray(at, end));
    }
  });
}

/** Whether `FOREIGN_LINE` can match. This is much faster than the search itself, and nearly always false. */
function mayBeForeign(text: string): boolean {
  if (text.includes(' RTSP/') || text.includes(' ICE/')) return true;
  const lastLine = Math.max(text.lastIndexOf('\n'), text.lastIndexOf('\r')) + 1;
  return ENDS_IN_BEGINNING.test(text.slice(lastLine));
}

/** Counts how many bytes of a body with a `Content-Length` are still to come. */
function bodyProgress(inBodyOf: FeedOptions['inBodyOf']) {
  let request: ReturnType<typeof inBodyOf>;
  let left = 0;
  return {
    left: () => (inBodyOf() === request ? left : 0),
    /** Call it after the parser has got so many bytes. The last bytes of the head count as bytes of the body. */
    given(bytes: number) {
      const current = inBodyOf();
      if (current !== request) left = Number(current?.headers['content-length'] ?? 0);
      request = current;
      left = Math.max(0, left - bytes);
    },
  };
}
