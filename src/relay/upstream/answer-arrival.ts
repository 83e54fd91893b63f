import type { Dispatcher } from 'undici';
import type { Connection } from './connections.ts';

/** Takes the body of an answer. */
export interface AnswerReader {
  data(chunk: Buffer): void;
  /** The body is whole as far as HTTP can tell. */
  end(): void;
  /** The body broke off; `cause` is the error code of the system or the HTTP parser. */
  broken(cause: string): void;
}

/** An answer of the bot service, whose body waits to be read. */
export interface UpstreamAnswer {
  readonly status: number;
  /** By lower-case name; the values of a field that came more than once are joined (RFC 9110 §5.3). */
  readonly headers: Readonly<Record<string, string>>;
  /** Hands the body to `reader` from now on. To be called once. */
  read(reader: AnswerReader): void;
  /** Lets no more of the body come than is on its way already, until `resume`. */
  pause(): void;
  resume(): void;
  /** Closes the connection: to the reader, the body breaks off as `closed`. Does nothing once the body has ended. */
  close(): void;
  /** Whether the connection broke rather than ended: of a body that ends with its connection, only this tells. */
  hasError(): boolean;
}

type Fields = Readonly<Record<string, string | string[] | undefined>>;

/** Makes an answer of what undici says about the request that is under way on `connection`. */
export function answerArrival(connection: Connection) {
  let state: 'awaited' | 'started' | 'head' = 'awaited';
  let over = false;
  let reader: AnswerReader | undefined;
  /** What came before there was a reader: undici does not hold the body of a connection that the service has closed. */
  const early: ((reader: AnswerReader) => void)[] = [];

  function tell(what: (reader: AnswerReader) => void): void {
    if (over) return;
    if (reader) what(reader);
    else early.push(what);
  }
  function finish(what: (reader: AnswerReader) => void): void {
    tell(what);
    over = true;
  }

  function answerOf(
    controller: Dispatcher.DispatchController,
    status: number,
    fields: Fields,
  ): UpstreamAnswer {
    return {
      status,
      headers: joined(fields),
      read(by) {
        reader = by;
        for (const what of early.splice(0)) what(by);
        controller.resume();
      },
      pause: () => controller.pause(),
      resume: () => controller.resume(),
      close() {
        if (over) return;
        connection.close();
        finish((by) => by.broken('closed'));
      },
      hasError: connection.hasError,
    };
  }

  return {
    begin(controller: Dispatcher.DispatchController, status: number, fields: Fields): UpstreamAnswer {
      state = 'head';
      controller.pause();
      return answerOf(controller, status, fields);
    },
    /** A byte of the answer has come. */
    start() {
      if (state === 'awaited') state = 'started';
    },
    isStarted: () => state !== 'awaited',
    hasHead: () => state === 'head',
    data: (chunk: Buffer) => tell((by) => by.data(chunk)),
    end() {
      connection.release();
      finish((by) => by.end());
    },
    broken(cause: string) {
      connection.close();
      finish((by) => by.broken(cause));
    },
  };
}

function joined(fields: Fields): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) headers[name] = Array.isArray(value) ? value.join(', ') : value;
  }
  return headers;
}
