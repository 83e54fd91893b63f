import { setTimeout as sleep } from 'node:timers/promises';

/** A message as clients in the field send it; every field may be missing. */
export interface Message {
  readonly text?: unknown;
  readonly customChannelId?: unknown;
  readonly customMessageId?: unknown;
}

/** What a bot is asked: the message, and what the service knows about it. */
export interface Ask extends Message {
  /** A nudge has neither text nor files. A consent answers a tool call that waited for it. */
  readonly kind: 'message' | 'nudge' | 'consent';
  /** Whether the bot may call its tools now. */
  readonly isAllowed: boolean;
  /** The names of the files that came with the message. */
  readonly files: readonly string[];
}

/** A tool that a bot calls. */
export interface Tool {
  readonly toolsetName: string;
  readonly toolName: string;
  readonly parameter: object;
}

/**
 * A step of a run: a piece of text to say, the beginning of the next message, a call of a tool, the question whether a
 * tool may be called, a broken connection, or the end of the run by an error of the service.
 */
export type Step =
  | { readonly say: string }
  | { readonly nextMessage: true }
  | { readonly call: Tool; readonly result: object }
  | { readonly askConsent: Tool }
  | { readonly breakOff: true }
  | { readonly error: { code: string; message: string } };

/** How fast the demo answers, in ms. */
export interface Speed {
  readonly wordMs: number;
  /** How long `demo/slow` is silent in the middle of its answer. */
  readonly silenceMs: number;
}

type Answer = (ask: Ask, speed: Speed, signal: AbortSignal) => AsyncGenerator<Step>;

/** The service's limit on the steps of one request. */
const MAX_STEPS = 30;

const GUIDE = `This answer came through bot-relay. Your page sent a plain POST with the session cookie; \
the relay checked the session, the origin and the message, put the API key on the request \
and passed this stream on as it came. The key never left the server. \
Set UPSTREAM_BASE_URL, UPSTREAM_API_KEYS and BOTS to talk to your own bot service.`;

const CLOCK: Tool = { toolsetName: 'demo', toolName: 'clock', parameter: { zone: 'UTC' } };

/** Bots whose runs can be resumed also without a channel. With one, every run can. */
export const RESUMABLE: ReadonlySet<string> = new Set(['demo/resume']);

/** The demo's bots, by `namespace/bot`. */
export const ANSWERS: Readonly<Record<string, Answer>> = {
  async *'demo/echo'({ text, files }, speed, signal) {
    const isSaid = typeof text === 'string' && text !== '';
    yield* speak(isSaid ? `You said: ${text}` : 'You said nothing.', speed.wordMs, signal);
    if (files.length > 0) yield* speak(` You sent: ${files.join(', ')}`, speed.wordMs, signal);
  },
  async *'demo/guide'(_message, speed, signal) {
    yield* speak(GUIDE, speed.wordMs, signal);
  },
  async *'demo/slow'(_message, speed, signal) {
    yield* speak('Let me think about that.', speed.wordMs, signal);
    await sleep(speed.silenceMs, undefined, { signal });
    yield* speak(' Here is what came of it.', speed.wordMs, signal);
  },
  async *'demo/steps'(_message, speed, signal) {
    for (let step = 1; step <= MAX_STEPS; step++) {
      yield { say: `Step ${step}. ` };
      await sleep(speed.wordMs, undefined, { signal });
    }
    yield { error: { code: 'STEP_LIMIT_EXCEEDED', message: `The run took more than ${MAX_STEPS} steps.` } };
  },
  async *'demo/resume'(_message, speed, signal) {
    yield* speak('This answer has two messages.', speed.wordMs, signal);
    yield { nextMessage: true };
    yield* speak('The second breaks off', speed.wordMs, signal);
    yield { breakOff: true };
    yield* speak(' and goes on where it did.', speed.wordMs, signal);
  },
  async *'demo/tools'({ kind, isAllowed }, speed, signal) {
    if (kind === 'nudge') return yield* speak('Ask me what time it is.', speed.wordMs, signal);
    if (!isAllowed && kind === 'consent') return yield* speak('Then I do not know.', speed.wordMs, signal);
    if (!isAllowed) {
      yield* speak('May I look at the clock?', speed.wordMs, signal);
      return yield { askConsent: CLOCK };
    }
    const time = new Date().toISOString().slice(11, 16);
    yield { call: CLOCK, result: { time } };
    yield* speak(`It is ${time} in UTC.`, speed.wordMs, signal);
  },
};

async function* speak(text: string, wordMs: number, signal: AbortSignal): AsyncGenerator<Step> {
  for (const word of text.match(/\s*\S+/g) ?? []) {
    await sleep(wordMs, undefined, { signal });
    yield { say: word };
  }
}
