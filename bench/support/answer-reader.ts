const HEAD_END = '\r\n\r\n';
const LF = 0x0a;
const CR = 0x0d;

export interface AnswerHandlers {
  /** Called with the body, without its framing, as it comes. */
  readonly onBody: (bytes: Buffer) => void;
  /** Called when an answer is whole. */
  readonly onEnd: () => void;
}

/**
 * Reads one answer after the other from what comes on a connection: 200 with a chunked body (RFC 9112 §7.1),
 * which is what every peer makes of a stream. Cheap, so that it is not the reader that is measured.
 * The returned function takes the connection's bytes. @throws Error from it, if an answer is anything else
 */
export function answerReader({ onBody, onEnd }: AnswerHandlers): (data: Buffer) => void {
  let state: 'head' | 'size' | 'data' | 'data-end' | 'last' = 'head';
  let head = '';
  let size = '';
  let left = 0;

  /** Takes the head, or what there is of it; returns where the body starts. */
  function takeHead(data: Buffer, at: number): number {
    const before = head.length;
    head += data.toString('latin1', at);
    const end = head.indexOf(HEAD_END);
    if (end < 0) return data.length;
    const [status = ''] = head.split('\r\n', 1);
    if (!status.startsWith('HTTP/1.1 200')) throw new Error(`answered: ${status}`);
    if (!/\r\ntransfer-encoding: *chunked\r\n/i.test(head.slice(0, end + 2)))
      throw new Error('the answer is not chunked');
    head = '';
    state = 'size';
    return at + end + HEAD_END.length - before;
  }

  /** Takes one byte of a chunk's size line. */
  function takeSize(byte: number): void {
    if (byte === CR) return;
    if (byte !== LF) {
      size += String.fromCharCode(byte);
      return;
    }
    left = Number.parseInt(size, 16);
    if (Number.isNaN(left)) throw new Error(`no size of a chunk: ${JSON.stringify(size)}`);
    size = '';
    state = left === 0 ? 'last' : 'data';
  }

  /** Takes what there is of a chunk's data; returns where it ends. */
  function takeData(data: Buffer, at: number): number {
    const end = Math.min(data.length, at + left);
    left -= end - at;
    if (left === 0) state = 'data-end';
    onBody(data.subarray(at, end));
    return end;
  }

  return (data) => {
    let at = 0;
    while (at < data.length) {
      if (state === 'head') at = takeHead(data, at);
      else if (state === 'size') takeSize(data[at++] as number);
      else if (state === 'data') at = takeData(data, at);
      else if (data[at++] === LF) {
        // Behind the last chunk comes an empty line: none of the peers sends trailers.
        const isOver = state === 'last';
        state = isOver ? 'head' : 'size';
        if (isOver) onEnd();
      }
    }
  };
}
