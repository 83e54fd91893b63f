const HEAD_END = '\r\n\r\n';
const LF = 0x0a;
const CR = 0x0d;

export interface AnswerHandlers {
  /** Called with the body, without its framing, as it comes. */
  readonly onBody: (bytes: Buffer) => void;
  /** Called when an answer is complete. */
  readonly onEnd: () => void;
}

/**
 * Makes a function that takes the bytes of a connection and reads one answer after the other. All answers must be 200
 * with a chunked body (RFC 9112 §7.1), as every peer sends a stream. The function is cheap, since its own cost must not
 * be measured; it throws an Error at any other answer.
 */
export function answerReader({ onBody, onEnd }: AnswerHandlers): (data: Buffer) => void {
  let state: 'head' | 'size' | 'data' | 'data-end' | 'last' = 'head';
  let head = '';
  let size = '';
  let left = 0;

  /** Takes the head or a part of it; returns where the body starts. */
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

  /** Takes the data of a chunk or a part of it; returns where it ends. */
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
        // After the last chunk comes an empty line, since no peer sends trailers.
        const isOver = state === 'last';
        state = isOver ? 'head' : 'size';
        if (isOver) onEnd();
      }
    }
  };
}
