import { parseArgs } from 'node:util';
import { botPattern } from '../bots/schemas.ts';

export const CHECK_USAGE = `Usage: npm run check -- [options]     prove this configuration against what is really there
  --no-messages          send no message: keys and the arrival of events are not tried
  --text TEXT            what the messages say; each message is one run of a bot
  --bot NAMESPACE/BOT    only this bot (may be given again); also one that a * in BOTS lets through
  --through URL          go the whole way, through the load balancer at this public address
  --user NAME            with AUTH_MODE=password, sign in there; the password is asked for, or read from CHECK_PASSWORD
  --password-file FILE   or from this file
  --json                 print JSON
`;

/** What a check is asked for. */
export interface CheckOptions {
  readonly json: boolean;
  readonly messages: boolean;
  readonly text: string;
  /** Bots by name; all of `BOTS` if there are none. */
  readonly bots: readonly string[];
  readonly through: Readonly<URL> | undefined;
  readonly user: string | undefined;
  readonly passwordFile: string | undefined;
}

const DEFAULT_TEXT = 'This is a test of the connection. Please answer with three short sentences.';

/** Reads the command's arguments; an answer in words is what is wrong with them. */
export function readArguments(args: readonly string[]): CheckOptions | string {
  const values = parsed(args);
  if (!values) return CHECK_USAGE;
  const { json = false, text = DEFAULT_TEXT, bot: bots = [], through, user } = values;
  const wrongBot = bots.some((name) => name.includes('*') || !botPattern.safeParse(name).success);
  if (wrongBot) return '--bot takes one bot by name: namespace/bot\n';
  if (through !== undefined && !isOrigin(through)) {
    return '--through takes an http or https origin such as https://chat.example.com\n';
  }
  if (through === undefined && (user ?? values['password-file']) !== undefined) {
    return '--user and --password-file go with --through\n';
  }
  if (user === undefined && values['password-file'] !== undefined) {
    return '--password-file goes with --user\n';
  }
  return {
    json,
    messages: values['no-messages'] !== true,
    text,
    bots: [...new Set(bots)],
    through: through === undefined ? undefined : new URL(through),
    user,
    passwordFile: values['password-file'],
  };
}

/** `undefined` if something is not known. What it is, is not said: a password may have been typed in the wrong place. */
function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        json: { type: 'boolean' },
        'no-messages': { type: 'boolean' },
        text: { type: 'string' },
        bot: { type: 'string', multiple: true },
        through: { type: 'string' },
        user: { type: 'string' },
        'password-file': { type: 'string' },
      },
    }).values;
  } catch {
    return undefined;
  }
}

function isOrigin(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, href, origin } = new URL(text);
  return /^https?:$/.test(protocol) && href === `${origin}/`;
}
