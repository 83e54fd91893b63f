import type { RequestLocals } from '../http/locals.ts';
import type { Logger } from '../logger.ts';
import type { Holders } from '../pace/holders.ts';
import type { TakeResumptionTurn } from '../pace/resumption-turns.ts';
import type { NotResumed } from '../relay/message/break-causes.ts';
import { type Healer, type HealerOptions, healer } from '../relay/message/healing.ts';
import { healingGate } from '../relay/message/healing-gate.ts';
import { type HeldBytes, partOf } from '../relay/message/held-bytes.ts';
import type { KeyRings } from '../relay/upstream/key-rings.ts';
import { messageKeys } from '../relay/upstream/message-keys.ts';
import {
  observedSend,
  type RelayObserver,
  type ResumptionOutcome,
} from '../relay/upstream/relay-observer.ts';
import type { Upstream, UpstreamRequest } from '../relay/upstream/send.ts';

export interface MessageHealingOptions {
  /** Whether streams are resumed at all. */
  readonly resume: boolean;
  /** At most half of it is for kept messages, so that streams can always hold their events. */
  readonly held: HeldBytes;
  readonly takeResumptionTurn: TakeResumptionTurn;
  readonly keyRings: Pick<KeyRings, 'ringOf'>;
  readonly send: Upstream['send'];
  readonly responseTimeoutMs: number;
  readonly observer: RelayObserver;
  readonly logger: Logger;
}

/** A message whose stream may break. */
export interface HealableMessage {
  /** Without a key. */
  readonly request: UpstreamRequest;
  /** `namespace/bot`. */
  readonly bot: string;
  readonly holders: Holders;
  /** Gets the number of attempts. */
  readonly locals: RequestLocals;
}

/** What is kept of a message until its stream is over. */
export interface KeptMessage {
  /** Makes what resumes the stream if it breaks, or why that can't be. */
  readonly healer: (() => Healer) | NotResumed;
  /** Forgets the message. May be called again. */
  readonly release: () => void;
}

type KeepMessage = (message: HealableMessage) => KeptMessage | undefined;

/** Makes the function that keeps a message for healing; it returns undefined if streams are not resumed. */
export function messageHealing(options: MessageHealingOptions): KeepMessage {
  const gate = healingGate();
  const held = partOf(options.held, options.held.maxBytes / 2);
  const { resume, takeResumptionTurn, keyRings, send, responseTimeoutMs, observer, logger } = options;
  return function keepMessage({ request, bot, holders, locals }) {
    if (!resume) return undefined;
    const kept = gate.mayHeal(bot) ? keepRequest(request, held) : 'new_run';
    if (typeof kept === 'string') return { healer: kept, release() {} };
    return {
      healer: () => healer(healingOf({ bot, holders, locals, request: kept.request() })),
      release: kept.release,
    };
  };

  function healingOf({ request, bot, holders, locals }: HealableMessage): HealerOptions {
    const { requestId } = locals;
    return {
      request,
      bot,
      gate,
      responseTimeoutMs,
      observe(outcome, attempt, cause) {
        locals.resumptions = attempt;
        observer.resumption(outcome);
        logger[LEVELS[outcome] ?? 'info']({ requestId, bot, attempt, outcome, cause }, 'stream resumption');
      },
      turn: (signal) => takeResumptionTurn({ endpoint: bot, holders }, signal),
      keys: () => messageKeys(keyRings.ringOf(bot), logger, requestId),
      send: (fingerprint) => observedSend(send, fingerprint, observer),
    };
  }
}

/** The operator must learn of a new run in the place of the resumed one, since it is paid again. */
const LEVELS: Readonly<Partial<Record<ResumptionOutcome, 'error' | 'warn'>>> = {
  new_run: 'error',
  key_rejected: 'warn',
};

/** A larger body is not kept, in bytes: its stream can't be resumed. */
const MAX_BODY_BYTES = 65_536;

/** A request that is kept for as long as its stream may have to be resumed. */
interface KeptRequest {
  /** Makes the request. Its body is made anew each time that it is read. */
  request(): UpstreamRequest;
  /** Counts its body no longer. May be called again. */
  release(): void;
}

/** Keeps a copy of a request without a key, or returns why it can't. */
function keepRequest(
  { path, headers, body }: UpstreamRequest,
  held: HeldBytes,
): KeptRequest | 'large_body' | 'no_room' {
  if (body.length > MAX_BODY_BYTES) return 'large_body';
  if (!held.take(body.length)) return 'no_room';
  // The body may be a part of a larger buffer, which a reference would keep in memory. A text costs less than a buffer.
  const copy = body.toString('latin1');
  let isHeld = true;
  return {
    request: () => ({
      path,
      headers,
      get body() {
        return Buffer.from(copy, 'latin1');
      },
    }),
    release() {
      if (isHeld) held.release(copy.length);
      isHeld = false;
    },
  };
}
