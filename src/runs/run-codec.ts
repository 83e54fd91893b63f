import { PROBLEMS, Problem, type ProblemCode, type ProblemOptions } from '../errors.ts';
import type { RunPhase } from './run.ts';
import { RUN_LOST } from './run-problems.ts';

/** Seals what is stored of a run. */
export interface RunSealer {
  sealBytes(bytes: Buffer, name: string): string;
  openBytes(sealed: string, name: string): Buffer | undefined;
}

/** The sealer of each run, with keys of its own. */
export interface RunSealers {
  (run: string): RunSealer;
  /** Keeps the keys of this run no longer. */
  forget(run: string): void;
}

type Headers = readonly (readonly [string, string])[];

/** The headers of a run's answer. */
export interface StoredHead {
  /** Headers of the stream alone. */
  readonly head: Headers;
  /** Headers of every answer, be it a stream or not. */
  readonly headers: Headers;
}

/** How a run has ended. */
export interface StoredEnd {
  readonly problem: Problem | undefined;
  readonly isCut: boolean;
  /** The offset after the last byte of its stream: a reader that has less does not have it whole. */
  readonly at: number;
  /** Whether readers at other instances may send the message: it was not sent, for a reason of this instance alone. */
  readonly isFree: boolean;
  readonly phase: RunPhase;
  readonly upstreamStatus: number | undefined;
  readonly headers: Headers;
}

/** Turns what is known of a run into texts for a store, and back. Each is bound to its run and its place. */
export interface RunCodec {
  sealBytes(bytes: Buffer, run: string, offset: number): string;
  /** Undefined if it cannot be read, as all below. */
  openBytes(sealed: string, run: string, offset: number): Buffer | undefined;
  sealRequest(requestId: string, run: string): string;
  openRequest(sealed: string, run: string): string | undefined;
  sealHead(head: StoredHead, run: string): string;
  openHead(sealed: string, run: string): StoredHead | undefined;
  sealEnd(end: StoredEnd, run: string): string;
  openEnd(sealed: string, run: string): StoredEnd | undefined;
  /** Drops the keys of a run that is over here. They are made again if it is read once more. */
  forget(run: string): void;
}

/** Makes the codec. */
export function runCodec(sealerOf: RunSealers): RunCodec {
  const seal = (value: unknown, run: string, what: string) =>
    sealerOf(run).sealBytes(Buffer.from(JSON.stringify(value)), what);
  const open = (sealed: string, run: string, what: string) => {
    const bytes = sealerOf(run).openBytes(sealed, what);
    return bytes && (JSON.parse(bytes.toString()) as unknown);
  };
  return {
    sealBytes: (bytes, run, offset) => sealerOf(run).sealBytes(bytes, String(offset)),
    openBytes: (sealed, run, offset) => sealerOf(run).openBytes(sealed, String(offset)),
    sealRequest: (requestId, run) => seal(requestId, run, 'request'),
    openRequest: (sealed, run) => open(sealed, run, 'request') as string | undefined,
    sealHead: (head, run) => seal(head, run, 'head'),
    openHead: (sealed, run) => open(sealed, run, 'head') as StoredHead | undefined,
    sealEnd: ({ problem, ...end }, run) =>
      seal({ ...end, ...(problem && { problem: problemText(problem) }) }, run, 'end'),
    openEnd(sealed, run) {
      const stored = open(sealed, run, 'end') as EndText | undefined;
      return stored && { ...stored, problem: stored.problem && readProblem(stored.problem) };
    },
    forget: sealerOf.forget,
  };
}

interface ProblemText {
  readonly code: ProblemCode;
  readonly detail: string;
  readonly options: ProblemOptions;
}

interface EndText extends Omit<StoredEnd, 'problem'> {
  readonly problem: ProblemText | undefined;
}

/** Without an error as its cause, which the instance has logged where it occurred. */
function problemText({ code, message, status, options }: Problem): ProblemText {
  const { cause, ...others } = options;
  return {
    code,
    detail: message,
    options: { ...others, status, ...(typeof cause === 'string' && { cause }) },
  };
}

/** Another version may have codes that this one does not know. */
function readProblem({ code, detail, options }: ProblemText): Problem {
  if (!Object.hasOwn(PROBLEMS, code)) return RUN_LOST;
  return new Problem(code, detail, options);
}
