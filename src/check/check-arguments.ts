import { parseArgs } from 'node:util';
import { botPattern } from '../bots/schemas.ts';

export const CHECK_USAGE = `Usage: bot-relay check [options]     prove this configuration against what is really there
  --no-messages          send no message: keys and the arrival of events are not tried
  --text TEXT            what the messages say; each message is one run of a bot
  --bot NAMESPACE/BOT    only this bot (may be given again); also one that a * in BOTS lets through
  --through URL          go the whole way, through the load balancer at this public address
  --user NAME            with AUTH_MODE=password, sign in there; the password is asked for, or read from CHECK_PASSWORD
  --password-file FILE   or from this file
  --other-user NAME      a second user, who must not see the conversation of the first; as for --user, the password
                         is asked for, or read from CHECK_OTHER_PASSWORD
  --other-password-file FILE   or from this file
  --json                 print JSON
`;

/** A user who signs in, and where the password may be: in a variable, or in the file that an option names. */
export interface UserOption {
  readonly name: string;
  readonly variable: string;
  readonly option: string;
  readonly file: string | undefined;
}

/** The options of a check. */
export interface CheckOptions {
  readonly json: boolean;
  readonly messages: boolean;
  readonly text: string;
  /** Bots by name; all of `BOTS` if there are none. */
  readonly bots: readonly string[];
  readonly through: Readonly<URL> | undefined;
  /** The first user, and the second one, who must not reach what the first one has. */
  readonly users: readonly UserOption[];
}

const DEFAULT_TEXT = 'This is a test of the connection. Please answer with three short sentences.';

/** Reads the command's arguments. Returns a text that says what is wrong, if they cannot be used. */
export function readArguments(args: readonly string[]): CheckOptions | string {
  const values = parsed(args);
  if (!values) return CHECK_USAGE;
  const { json = false, text = DEFAULT_TEXT, bot: bots = [], through, user } = values;
  const { 'password-file': file, 'other-user': other, 'other-password-file': otherFile } = values;
  const faults: readonly (readonly [boolean, string])[] = [
    [!bots.every(isBot), '--bot takes one bot by name: namespace/bot'],
    [!isOrigin(through), '--through takes an http or https origin such as https://chat.example.com'],
    [through === undefined && (user ?? file) !== undefined, '--user and --password-file go with --through'],
    [user === undefined && file !== undefined, '--password-file goes with --user'],
    [user === undefined && other !== undefined, '--other-user goes with --user'],
    [other === undefined && otherFile !== undefined, '--other-password-file goes with --other-user'],
    [other !== undefined && other === user, '--other-user must be another user than --user'],
  ];
  const fault = faults.find(([isWrong]) => isWrong);
  if (fault) return `${fault[1]}\n`;
  return {
    json,
    messages: values['no-messages'] !== true,
    text,
    bots: [...new Set(bots)],
    through: through === undefined ? undefined : new URL(through),
    users: [
      { name: user, variable: 'CHECK_PASSWORD', option: '--password-file', file },
      { name: other, variable: 'CHECK_OTHER_PASSWORD', option: '--other-password-file', file: otherFile },
    ].filter((one): one is UserOption => one.name !== undefined),
  };
}

/** `undefined` if an argument is unknown. It is not printed, since it may be a password typed in the wrong place. */
function parsed(args: readonly string[]) {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean' } as const;
  try {
    return parseArgs({
      args: [...args],
      options: {
        ...{ json: flag, 'no-messages': flag, text, through: text, bot: { ...text, multiple: true } },
        ...{ user: text, 'password-file': text, 'other-user': text, 'other-password-file': text },
      },
    }).values;
  } catch {
    return undefined;
  }
}

function isBot(name: string): boolean {
  return !name.includes('*') && botPattern.safeParse(name).success;
}

function isOrigin(text: string | undefined): boolean {
  if (text === undefined) return true;
  if (!URL.canParse(text)) return false;
  const { protocol, href, origin } = new URL(text);
  return /^https?:$/.test(protocol) && href === `${origin}/`;
}
