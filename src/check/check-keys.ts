import { overlap } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import { keyRings } from '../relay/upstream/key-rings.ts';
import type { Secret } from '../secret.ts';
import { adviceFor } from './advice.ts';
import { type Answer, describeAnswer, jsonOf } from './answers.ts';
import { newMessage } from './conversation.ts';
import type { DirectService } from './direct-service.ts';
import { arrivalVerdict, endingVerdict, judgeArrival } from './judge-stream.ts';
import { type Observation, observeStream } from './observe-stream.ts';
import type { CheckReport } from './report.ts';

/** The bots to send to: those in `named`, or all that `BOTS` names without a `*`. Reports the others. */
export function botsToAsk({ bots }: Config, named: readonly string[], report: CheckReport): string[] {
  const isAllowed = (bot: string) => bots.some((pattern) => overlap(pattern, bot));
  for (const bot of named.filter((bot) => !isAllowed(bot)))
    report.about('bot', bot).problem('BOTS does not allow it', 'Add it to BOTS.');
  if (named.length > 0) return named.filter(isAllowed);
  for (const bot of bots.filter((bot) => bot.includes('*'))) {
    const says = 'stands for bots that only the bot service knows: not tried';
    report.about('bot', bot).note(says, 'Name one of them with --bot NAMESPACE/BOT.');
  }
  return bots.filter((bot) => !bot.includes('*'));
}

/** A key of a bot. */
export interface BotKey {
  readonly bot: string;
  readonly key: Secret;
}

/** Each key of each of `bots`, in the order in which the relay tries them. */
export function keysToTry({ upstream, bots: allowed }: Config, bots: readonly string[]): BotKey[] {
  const rings = keyRings({ settings: upstream, bots: allowed });
  return bots.flatMap((bot) => rings.ringOf(bot).keys.map((key) => ({ bot, key })));
}

/** How the answer of a bot arrived, and the key with which it was asked. */
export interface BotAnswer extends BotKey {
  readonly seen: Observation;
}

export interface DirectMessages {
  readonly service: DirectService;
  readonly text: string;
  readonly report: CheckReport;
  /** How long an answer may take. */
  readonly maxExecutionMs: number;
}

/**
 * Sends one message with each of `keys`, one after the other, and reports whether the service accepts the key. Of each
 * bot, one answer is read to its end; the other messages are aborted as soon as their key was accepted. Returns the
 * answers by bot.
 */
export async function checkKeys(
  keys: readonly BotKey[],
  { service, text, report, maxExecutionMs }: DirectMessages,
): Promise<Map<string, BotAnswer>> {
  const answers = new Map<string, BotAnswer>();
  for (const { bot, key } of keys) {
    const { ok, problem } = report.about('key', `${bot} ${key.fingerprint}`);
    try {
      const sent = await service.send({ bot, key, message: newMessage(text) });
      if (sent === undefined) problem(...BUSY);
      else if ('status' in sent) problem(...refusal(sent, report));
      else {
        ok('works');
        if (answers.has(bot)) sent.response.destroy();
        else {
          const seen = await observeStream(sent, { limitMs: maxExecutionMs });
          answers.set(bot, { bot, key, seen });
          reportAnswer(bot, seen, report);
        }
      }
    } catch (error) {
      const code = (error as Error).message;
      problem(`the bot service cannot be reached (${code})`, adviceFor(code));
    }
  }
  return answers;
}

function reportAnswer(bot: string, seen: Observation, report: CheckReport): void {
  report.about('answer', bot).add(endingVerdict(seen, (text) => report.quote(text)));
  // An answer without any event cannot arrive too late.
  if (seen.events === 0 && judgeArrival(seen) !== 'torn') return;
  const between = 'something between here and the bot service';
  const advice = 'Look at an outgoing proxy or a scanner of TLS between here and the bot service.';
  report.about('arrival', bot).add(arrivalVerdict(seen, { between, advice }));
}

type Problem = readonly [says: string, advice: string];

const BUSY: Problem = [
  'the bot takes no more messages right now',
  'Try again when there is less to do; and see whether somebody else sends to this bot.',
];

/** Why the bot service has not taken a message, and what to do. */
function refusal(answer: Answer, report: CheckReport): Problem {
  const { status, text } = answer;
  if (status === 401 || status === 403)
    return ['the bot service refuses it', 'Replace it, or take it out; see npx bot-relay keys.'];
  if (status === 429) return BUSY;
  if (status >= 400 && status < 500) {
    const said = jsonOf(text) === undefined ? '' : `: ${report.quote(text)}`;
    const advice =
      status === 404 ? 'Look at the name of the bot and at UPSTREAM_BASE_URL.' : 'Try another --text.';
    return [`the bot service refuses the message with status ${status}${said}`, advice];
  }
  return [
    `the bot service answers with something else than a stream: ${report.quote(describeAnswer(answer))}`,
    'Look at UPSTREAM_BASE_URL; what answers there may not be the bot service.',
  ];
}
