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

/** How far an answer has come, and who reads it. */
interface Arrival {
  readonly connection: Connection;
  state: 'awaited' | 'started' | 'head';
  over: boolean;
  reader: AnswerReader | undefined;
  /** What came before there was a reader: undici does not hold the body of a connection that the service has closed. */
  readonly early: Told[];
}

/** Something that a reader is told. */
type Told = (reader: AnswerReader) => void;

/** Makes an answer of what undici says about the request that is under way on `connection`. */
export function answerArrival(connection: Connection) {
  const arrival: Arrival = { connection, state: 'awaited', over: false, reader: undefined, early: [] };
  return {
    begin(controller: Dispatcher.DispatchController, status: number, fields: Fields): UpstreamAnswer {
      arrival.state = 'head';
      controller.pause();
      return { status, headers: joined(fields), ...bodyControls(arrival, controller) };
    },
    /** A byte of the answer has come. */
    start() {
      if (arrival.state === 'awaited') arrival.state = 'started';
    },
    isStarted: () => arrival.state !== 'awaited',
    hasHead: () => arrival.state === 'head',
    data: (chunk: Buffer) => tell(arrival, (by) => by.data(chunk)),
    end() {
      connection.release();
      finish(arrival, (by) => by.end());
    },
    broken(cause: string) {
      connection.close();
      finish(arrival, (by) => by.broken(cause));
    },
  };
}

/** What may be done with the body of an answer whose head has come. */
function bodyControls(
  arrival: Arrival,
  controller: Dispatcher.DispatchController,
): Omit<UpstreamAnswer, 'status' | 'headers'> {
  const { connection, early } = arrival;
  return {
    read(by) {
      arrival.reader = by;
      for (const told of early.splice(0)) told(by);
      controller.resume();
    },
    pause: () => controller.pause(),
    resume: () => controller.resume(),
    close() {
      if (arrival.over) return;
      connection.close();
      finish(arrival, (by) => by.broken('closed'));
    },
    hasError: connection.hasError,
  };
}

function tell({ over, reader, early }: Arrival, told: Told): void {
  if (over) return;
  if (reader) told(reader);
  else early.push(told);
}

function finish(arrival: Arrival, told: Told): void {
  tell(arrival, told);
  arrival.over = true;
}

function joined(fields: Fields): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) headers[name] = Array.isArray(value) ? value.join(', ') : value;
  }
  return headers;
}
