import { overlap } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import { Problem } from '../errors.ts';
import { keyRings } from '../relay/upstream/key-rings.ts';
import type { Secret } from '../secret.ts';
import type { CheckOptions } from './check-arguments.ts';
import { adviceFor } from './failure-advice.ts';
import type { Report } from './findings.ts';
import { arrivalFinding, judgeArrival, seconds } from './judge-arrival.ts';
import type { Observation } from './observe-stream.ts';
import type { Outcome, TestMessage } from './send-message.ts';

const CHECK = 'key';

/** The bots to send to: those in `named`, or all that `BOTS` names without a `*`. Reports the others. */
export function botsToAsk({ bots }: Config, named: readonly string[], report: Report): string[] {
  const isAllowed = (bot: string) => bots.some((pattern) => overlap(pattern, bot));
  for (const about of named.filter((bot) => !isAllowed(bot))) {
    const says = 'BOTS does not allow it';
    report({ state: 'problem', check: 'bot', about, says, advice: 'Add it to BOTS.' });
  }
  if (named.length > 0) return named.filter(isAllowed);
  for (const about of bots.filter((bot) => bot.includes('*'))) {
    const says = 'stands for bots that only the bot service knows: not tried';
    const advice = 'Name one of them with --bot NAMESPACE/BOT.';
    report({ state: 'note', check: 'bot', about, says, advice });
  }
  return bots.filter((bot) => !bot.includes('*'));
}

/** A bot and its keys, in the order in which the relay tries them. */
export interface BotKeys {
  readonly bot: string;
  readonly keys: readonly Secret[];
}

/** The keys of each of `bots`. */
export function keysToTry({ upstream, bots: allowed }: Config, bots: readonly string[]): BotKeys[] {
  const rings = keyRings({ settings: upstream, bots: allowed });
  return bots.map((bot) => ({ bot, keys: rings.ringOf(bot).keys }));
}

/** How an answer arrived, and the key that the service has accepted for it. */
export interface KeyAnswer {
  readonly key: Secret;
  readonly seen: Observation;
}

export interface KeysOptions extends Pick<CheckOptions, 'text'> {
  readonly report: Report;
  readonly quote: (text: string) => string;
  readonly send: (message: TestMessage) => Promise<Outcome>;
}

/**
 * Sends each bot one message with each of its keys, one after the other, and reports whether the service accepts the
 * key. Of each bot, one answer is read to its end; the other messages are aborted as soon as their key was accepted.
 * Returns the answers by bot.
 */
export async function checkKeys(
  bots: readonly BotKeys[],
  options: KeysOptions,
): Promise<Map<string, KeyAnswer>> {
  const answers = new Map<string, KeyAnswer>();
  for (const { bot, keys } of bots) {
    for (const key of keys) {
      const message = { bot, key, text: options.text, readToEnd: !answers.has(bot) };
      const seen = await checkKey(message, options);
      if (seen) answers.set(bot, { key, seen });
    }
  }
  return answers;
}

async function checkKey(message: TestMessage, options: KeysOptions): Promise<Observation | undefined> {
  const { report, quote, send } = options;
  const about = `${message.bot} ${message.key.fingerprint}`;
  try {
    const result = await send(message);
    if (result.outcome === 'key_rejected') {
      const advice = 'Replace it, or take it out; see npx bot-relay keys.';
      report({ state: 'problem', check: CHECK, about, says: 'the bot service refuses it', advice });
      return undefined;
    }
    report({ state: 'ok', check: CHECK, about, says: 'works' });
    if (result.outcome !== 'answered') return undefined;
    reportAnswer(result.seen, { about: message.bot, report, quote });
    return result.seen;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    report({ state: 'problem', check: CHECK, about, ...failure(error, quote) });
    return undefined;
  }
}

interface AnswerContext {
  readonly about: string;
  readonly report: Report;
  readonly quote: (text: string) => string;
}

function reportAnswer(seen: Observation, { about, report, quote }: AnswerContext): void {
  const ending = endingFinding(seen, quote);
  report({ ...ending, about });
  const between = 'something between here and the bot service';
  const advice = 'Look at an outgoing proxy or a scanner of TLS between here and the bot service.';
  // An answer without any event cannot arrive too late.
  if (seen.events > 0 || judgeArrival(seen) === 'torn')
    report({ ...arrivalFinding(seen, { between, advice }), about });
}

/** Judges how an answer ended, be it from the bot service or through the relay. */
export function endingFinding(seen: Observation, quote: (text: string) => string) {
  const check = 'answer';
  const state = 'problem' as const;
  if (seen.broken !== undefined) {
    const advice =
      'Try again; if it stays, look at what stands in between and at how long it lets a connection live.';
    return { state, check, says: `broke off after ${seconds(seen.endMs)} (${quote(seen.broken)})`, advice };
  }
  if (seen.runError !== undefined) {
    const advice = "Look at the bot at the service's console.";
    return { state, check, says: `the run ended in an error: ${quote(seen.runError)}`, advice };
  }
  if (seen.events === 0) {
    return { state, check, says: 'no event in it', advice: "Look at the bot at the service's console." };
  }
  return { state: 'ok' as const, check, says: `whole after ${seconds(seen.endMs)}` };
}

/** What failed with a message, and what to do. */
function failure({ code, status, message, cause, options }: Problem, quote: (text: string) => string) {
  const why = typeof cause === 'string' ? ` (${quote(cause)})` : '';
  switch (code) {
    case 'upstream_refused': {
      const body = options.upstream === undefined ? '' : `: ${quote(JSON.stringify(options.upstream))}`;
      const advice =
        status === 404 ? 'Look at the name of the bot and at UPSTREAM_BASE_URL.' : 'Try another --text.';
      return { says: `the bot service refuses the message with status ${status}${body}`, advice };
    }
    case 'upstream_bad_response': {
      const advice = 'Look at UPSTREAM_BASE_URL; what answers there may not be the bot service.';
      return { says: `the bot service answers with something else than a stream${why}`, advice };
    }
    case 'upstream_unreachable':
      return { says: `the bot service cannot be reached${why}`, advice: adviceFor(String(cause)) };
    case 'upstream_rate_limited':
    case 'rate_limited':
      return {
        says: 'the bot takes no more messages right now',
        advice: 'Try again when there is less to do; and see whether somebody else sends to this bot.',
      };
    default:
      return {
        says: `${message}${why}`,
        advice: 'Try again; if it stays, ask those who run the bot service.',
      };
  }
}
