import { setTimeout as sleep } from 'node:timers/promises';

/** A message as clients in the field send it; every field may be missing. */
export interface Message {
  readonly text?: unknown;
  readonly customChannelId?: unknown;
  readonly customMessageId?: unknown;
}

/** A step of a run: a piece of text to say, a broken connection, or the end of the run by an error of the service. */
export type Step =
  | { readonly say: string }
  | { readonly breakOff: true }
  | { readonly error: { code: string; message: string } };

/** How fast the demo speaks, in ms. */
export interface Pace {
  readonly wordMs: number;
  /** How long `demo/slow` is silent in mid-answer. */
  readonly silenceMs: number;
}

type Answer = (message: Message, pace: Pace, signal: AbortSignal) => AsyncGenerator<Step>;

/** The service's limit on the steps of one request. */
const MAX_STEPS = 30;

const GUIDE = `This answer came through bot-relay. Your page sent a plain POST with the session cookie; \
the relay checked the session, the origin and the message, put the API key on the request \
and passed this stream on as it came. The key never left the server. \
Set UPSTREAM_BASE_URL, UPSTREAM_API_KEYS and BOTS to talk to your own bot service.`;

/** Bots whose events carry an `id`, and which go on behind the event that `Last-Event-ID` names. */
export const RESUMABLE: ReadonlySet<string> = new Set(['demo/resume']);

/** The demo's bots, by `namespace/bot`. */
export const ANSWERS: Readonly<Record<string, Answer>> = {
  async *'demo/echo'({ text }, pace, signal) {
    yield* speak(typeof text === 'string' ? `You said: ${text}` : 'You said nothing.', pace.wordMs, signal);
  },
  async *'demo/guide'(_message, pace, signal) {
    yield* speak(GUIDE, pace.wordMs, signal);
  },
  async *'demo/slow'(_message, pace, signal) {
    yield* speak('Let me think about that.', pace.wordMs, signal);
    await sleep(pace.silenceMs, undefined, { signal });
    yield* speak(' Here is what came of it.', pace.wordMs, signal);
  },
  async *'demo/steps'(_message, pace, signal) {
    for (let step = 1; step <= MAX_STEPS; step++) {
      yield { say: `Step ${step}. ` };
      await sleep(pace.wordMs, undefined, { signal });
    }
    yield { error: { code: 'STEP_LIMIT_EXCEEDED', message: `The run took more than ${MAX_STEPS} steps.` } };
  },
  async *'demo/resume'(_message, pace, signal) {
    yield* speak('This answer breaks off', pace.wordMs, signal);
    yield { breakOff: true };
    yield* speak(' and goes on where it did.', pace.wordMs, signal);
  },
};

async function* speak(text: string, wordMs: number, signal: AbortSignal): AsyncGenerator<Step> {
  for (const word of text.match(/\s*\S+/g) ?? []) {
    await sleep(wordMs, undefined, { signal });
    yield { say: word };
  }
}
