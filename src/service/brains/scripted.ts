import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Ask, Brain, Step, ToolCall } from './steps.ts';

/** How fast the demo answers, in ms. */
export interface Speed {
  readonly wordMs: number;
  /** How long `demo/slow` is silent in the middle of its answer. */
  readonly silenceMs: number;
}

type Script = (ask: Ask, speed: Speed, signal: AbortSignal) => AsyncGenerator<Step>;

/** The service's limit on the steps of one request. */
const MAX_STEPS = 30;

const GUIDE = `This answer came through **bot-relay**:

1. Your page sent a plain \`POST\` with the session cookie.
2. The relay checked the session, the origin and the message.
3. It put the API key on the request, and passed this stream on as it came.

The key never left the server. To talk to your own bot service, set these:

\`\`\`ini
UPSTREAM_BASE_URL=https://bots.example.com
UPSTREAM_API_KEYS=the-key-of-the-service
BOTS=namespace/name
\`\`\``;

const CLOCK: ToolCall = { toolsetName: 'demo', toolName: 'clock', parameter: { zone: 'UTC' } };

/** The scripted bots, by `namespace/bot`. */
const SCRIPTS: Readonly<Record<string, Script>> = {
  async *'demo/echo'({ text, files }, speed, signal) {
    yield* speak(text ? `You said: ${text}` : 'You said nothing.', speed.wordMs, signal);
    const names = files.map(({ name }) => name).join(', ');
    if (names !== '') yield* speak(` You sent: ${names}`, speed.wordMs, signal);
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
    yield { completeMessage: true };
    yield { startMessage: true };
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
    const id = randomUUID();
    yield { startTool: CLOCK, id };
    yield { toolResult: { time }, id };
    yield* speak(`It is ${time} in UTC.`, speed.wordMs, signal);
  },
};

/** The names of the scripted bots, as `namespace/bot`. */
export const SCRIPTED_BOTS: readonly string[] = Object.keys(SCRIPTS);

/** What a user can say to each scripted bot, so that it shows what it is for. */
export const SCRIPTED_SUGGESTIONS: Readonly<Record<string, readonly string[]>> = {
  'demo/echo': [
    'Hello, how are you today?',
    'Where is my parcel?',
    'Say this back to me, word by word',
    'Reload the page now, and this answer still goes on',
  ],
  'demo/guide': ['How did this message get here?', 'Where is the API key?'],
  'demo/slow': ['Think about it for a while'],
  'demo/steps': ['Take as many steps as you can'],
  'demo/resume': ['Break off in the middle, and go on'],
  'demo/tools': ['What time is it?'],
};

/** The scripted bot `namespace/bot`, if there is one. */
export function scriptedBrain(name: string, speed: Speed): Brain | undefined {
  const script = Object.hasOwn(SCRIPTS, name) ? SCRIPTS[name] : undefined;
  if (!script) return undefined;
  return {
    isResumable: name === 'demo/resume',
    hasSandbox: true,
    // Some of it is for its makers and not for its users, as in the field.
    metadata: {
      'demo/title': `The demo's bot ${name.slice(name.indexOf('/') + 1)}`,
      'demo/workflow': 'answer',
      'demo/maintainer': 'someone@example.com',
    },
    async *answer(ask, signal) {
      yield { startMessage: true };
      yield* script(ask, speed, signal);
    },
  };
}

async function* speak(text: string, wordMs: number, signal: AbortSignal): AsyncGenerator<Step> {
  for (const word of text.match(/\s*\S+/g) ?? []) {
    await sleep(wordMs, undefined, { signal });
    yield { say: word };
  }
}

/**
 * The bots that the allow-list's `patterns` allow: those named, and the demo's own bots that a `*` matches. `known` are
 * the bots that the demo has.
 */
export function demoBots(patterns: readonly string[], known = SCRIPTED_BOTS): string[] {
  const named = patterns.flatMap((pattern) => {
    const [namespace, bot] = pattern.split('/');
    if (!pattern.includes('*')) return [pattern];
    return known.filter((one) => {
      const [itsNamespace, itsName] = one.split('/');
      return (namespace === '*' || namespace === itsNamespace) && (bot === '*' || bot === itsName);
    });
  });
  return [...new Set(named)];
}

/** One bot that the allow-list's `patterns` allow; a bot of the demo, if any is allowed. */
export function allowedDemoBot(patterns: readonly string[], known = SCRIPTED_BOTS): string {
  const bots = demoBots(patterns, known);
  const [namespace = '', bot = ''] = (patterns[0] ?? '').split('/');
  const made = `${namespace === '*' ? 'demo' : namespace}/${bot === '*' ? 'echo' : bot}`;
  return bots.find((one) => known.includes(one)) ?? bots[0] ?? made;
}
