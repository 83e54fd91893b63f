import type { RedisScript } from '../storage/redis.ts';
import type { RunCodec } from './run-codec.ts';
import type { MessageName, RunName } from './run-name.ts';
import type { RunParts } from './run-parts.ts';

/** How long an instance has the right to a run after its last sign of life, in ms. */
export const LEASE_MS = 5_000;
/** How long a run counts as followed after a look at it, in ms. */
export const FOLLOWED_MS = 3_000;
/** How many entries of a log are read at once. */
export const ENTRIES = 64;

/** The scripts of runs. */
export interface RunScripts {
  readonly enter: RedisScript;
  readonly newest: RedisScript;
  readonly forget: RedisScript;
  readonly flush: RedisScript;
  readonly read: RedisScript;
  readonly sessionEnded: RedisScript;
  readonly takeOver: RedisScript;
}

/** Times and bounds of what is stored in each part, in ms and bytes. */
export interface RunBounds {
  readonly keepMs: number;
  readonly rememberMs: number;
  /** How long a run outlives its last sign of life. Its name is remembered after that. */
  readonly lifeMs: number;
  readonly maxBytes: number;
  readonly maxBytesInAll: number;
  readonly maxNames: number;
}

/** What Redis says of a name: that it was claimed, is not known, was forgotten for this run, or the state of its run. */
export interface RunInRedis {
  readonly state: 'claimed' | 'unknown' | 'forgotten' | 'over' | 'live' | 'kept' | 'broken';
  readonly id: string;
  /** The offset of the first byte of its log; -1 if that is closed. */
  readonly first: number;
  readonly requestId: string;
}

/** Who claims a name. */
export interface Claim {
  readonly id: string;
  readonly token: string;
  readonly requestId: string;
}

/** What a holder writes of a run at once. Empty texts are left out; an offset of -1 closes the log. */
export interface Batch extends Pick<Claim, 'id' | 'token'> {
  readonly offset: number;
  readonly length: number;
  readonly isInside: boolean;
  readonly data: string;
  readonly head: string;
  readonly hold: string;
  readonly cursor: string;
  readonly end: string;
  /** What the run becomes; `given` lets go of it. */
  readonly state: '' | 'free' | 'over' | 'kept' | 'broken' | 'given';
}

/** What became of a batch, for how long the run is followed at others, in ms, and how far the fastest of them is. */
export type BatchAnswer = readonly [
  status: 'written' | 'closed' | 'lost' | 'gone',
  followed: number,
  seen: number,
];

/** An entry of a log: its id, and its fields and values in turn. */
export type Entry = readonly [id: string, fields: readonly string[]];

/** What has come of a run. */
export interface ReadAnswer {
  readonly state: string;
  readonly leaseMs: number;
  readonly end: number;
  readonly first: number;
  readonly head: string;
  readonly entries: readonly Entry[];
}

/** How far a run was read. */
export interface ReadPlace {
  /** The last entry that was read; empty at first. */
  readonly after: string;
  readonly at: number;
  readonly wantsHead: boolean;
  /** Only to tell that the run is followed: no entries are wanted. */
  readonly isFull?: boolean;
}

/** The run that was taken over, with what is stored of it; undefined if nobody may take it. */
export interface TakenAnswer {
  readonly end: number;
  readonly hold: string;
  readonly cursor: string;
  readonly sinceMs: number;
  readonly name: RunName;
}

/** Calls of the scripts. Each rejects with Problem `session_store_unavailable`. */
export interface RunCalls {
  /** A new id for a run of this conversation. */
  newId(conversation: string): string;
  enter(name: RunName, claim: Claim | undefined): Promise<RunInRedis>;
  newest(name: MessageName): Promise<RunInRedis>;
  forget(conversation: string, exceptName: string): Promise<void>;
  /** The part of Redis that has a run. */
  partOf(id: string): string;
  /** Stores what has come of runs of one part. The answers are in the order of the batches. */
  flush(batches: readonly Batch[]): Promise<readonly BatchAnswer[]>;
  read(id: string, place: ReadPlace): Promise<ReadAnswer>;
  /** The session of the last reader here has ended. */
  sessionEnded(id: string): Promise<void>;
  takeOver(id: string, token: string): Promise<TakenAnswer | undefined>;
}

/** Makes the calls. */
export function runCalls(
  scripts: RunScripts,
  bounds: RunBounds & { readonly parts: RunParts },
  codec: Pick<RunCodec, 'seal' | 'open'>,
): RunCalls {
  const { keepMs, rememberMs, lifeMs, maxBytes, maxBytesInAll, maxNames, parts } = bounds;
  const ofConversation = (conversation: string) => [parts.ofConversation(conversation)];
  const ofRun = (id: string) => [parts.ofRun(id)];
  const fixed = [LEASE_MS, maxBytes, maxBytesInAll, lifeMs, keepMs, rememberMs].map(String);
  const nameBounds = [LEASE_MS, lifeMs, maxNames, lifeMs + rememberMs, rememberMs].map(String);
  return {
    newId: parts.newId,
    async enter({ conversation, message, key, isKept }, claim) {
      const { id, token } = claim ?? { id: '', token: '' };
      // Clients choose it.
      const request = claim ? codec.seal(claim.requestId, id, 'request') : '';
      const name = [claim ? 'claims' : '', conversation, message, key, isKept ? 'kept' : ''];
      const args = [...name, id, token, request, ...nameBounds];
      return runInRedis(await scripts.enter(ofConversation(conversation), args), codec);
    },
    newest: async ({ conversation, message }) =>
      runInRedis(await scripts.newest(ofConversation(conversation), [message]), codec),
    async forget(conversation, exceptName) {
      await scripts.forget(ofConversation(conversation), [conversation, exceptName]);
    },
    partOf: parts.ofRun,
    async flush(batches) {
      const keys = [...new Set(batches.map(({ id }) => parts.ofRun(id)))];
      return (await scripts.flush(keys, [...fixed, ...batches.map(batchText)])) as BatchAnswer[];
    },
    async read(id, place) {
      const answer = (await scripts.read(ofRun(id), [id, ...placeTexts(place)])) as ReadReply;
      const [state, leaseMs = 0, end = 0, first = 0, head = '', entries] = answer;
      return { state, leaseMs, end, first, head, entries: entries ?? [] };
    },
    async sessionEnded(id) {
      await scripts.sessionEnded(ofRun(id), [id]);
    },
    async takeOver(id, token) {
      const answer = (await scripts.takeOver(ofRun(id), [id, token, String(LEASE_MS)])) as TakeReply;
      const [state, end, hold = '', cursor = '', sinceMs = 0, ...names] = answer;
      const [conversation = '', message = '', key = '', kept] = names;
      const name = { conversation, message, key, isKept: kept !== '' };
      return state === 'taken' ? { end: Number(end), hold, cursor, sinceMs, name } : undefined;
    },
  };
}

function placeTexts({ after, at, wantsHead, isFull = false }: ReadPlace): string[] {
  const count = isFull ? 0 : ENTRIES;
  return [after, String(count), String(at), String(FOLLOWED_MS), wantsHead ? 'head' : 'no head'];
}

type ReadReply = [
  state: string,
  lease?: number,
  end?: number,
  first?: number,
  head?: string,
  all?: Entry[] | null,
];
type TakeReply = [
  state: string,
  end?: string,
  hold?: string,
  cursor?: string,
  since?: number,
  ...names: string[],
];

function runInRedis(answer: unknown, codec: Pick<RunCodec, 'open'>): RunInRedis {
  const [state, id = '', first = '0', , request] = answer as [RunInRedis['state'], ...string[]];
  // Nobody reads a run that is over.
  const isThere = request && state !== 'over';
  const requestId = isThere ? (codec.open(request, id, 'request') as string | undefined) : undefined;
  return { state, id, first: Number(first), requestId: requestId ?? '' };
}

/** No value has a space: what is stored of a run is sealed. */
function batchText(batch: Batch): string {
  const { id, token, offset, length, isInside, data, head, hold, cursor, end, state } = batch;
  const inside = isInside ? 'inside' : '';
  return [id, token, offset, length, inside, data, head, hold, cursor, end, state].join(' ');
}
