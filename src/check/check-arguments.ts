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

/** The options of a check. */
export interface CheckOptions {
  readonly json: boolean;
  readonly messages: boolean;
  readonly text: string;
  /** Bots by name; all of `BOTS` if there are none. */
  readonly bots: readonly string[];
  readonly through: Readonly<URL> | undefined;
  readonly user: string | undefined;
  readonly passwordFile: string | undefined;
  readonly otherUser: string | undefined;
  readonly otherPasswordFile: string | undefined;
}

const DEFAULT_TEXT = 'This is a test of the connection. Please answer with three short sentences.';

/** Reads the command's arguments. Returns a text that says what is wrong, if they cannot be used. */
export function readArguments(args: readonly string[]): CheckOptions | string {
  const values = parsed(args);
  if (!values) return CHECK_USAGE;
  const { json = false, text = DEFAULT_TEXT, bot: bots = [], through, user } = values;
  const wrongBot = bots.some((name) => name.includes('*') || !botPattern.safeParse(name).success);
  if (wrongBot) return '--bot takes one bot by name: namespace/bot\n';
  if (through !== undefined && !isOrigin(through)) {
    return '--through takes an http or https origin such as https://chat.example.com\n';
  }
  const wrongUsers = faultOfUsers(values);
  if (wrongUsers !== undefined) return wrongUsers;
  return {
    json,
    messages: values['no-messages'] !== true,
    text,
    bots: [...new Set(bots)],
    through: through === undefined ? undefined : new URL(through),
    user,
    passwordFile: values['password-file'],
    otherUser: values['other-user'],
    otherPasswordFile: values['other-password-file'],
  };
}

/** What is wrong with the users that are to sign in, as a text; `undefined` if nothing is. */
function faultOfUsers(values: NonNullable<ReturnType<typeof parsed>>): string | undefined {
  const {
    through,
    user,
    'password-file': file,
    'other-user': other,
    'other-password-file': otherFile,
  } = values;
  if (through === undefined && (user ?? file) !== undefined)
    return '--user and --password-file go with --through\n';
  if (user === undefined && file !== undefined) return '--password-file goes with --user\n';
  if (user === undefined && other !== undefined) return '--other-user goes with --user\n';
  if (other === undefined && otherFile !== undefined) return '--other-password-file goes with --other-user\n';
  return other !== undefined && other === user
    ? '--other-user must be another user than --user\n'
    : undefined;
}

/** `undefined` if an argument is unknown. It is not printed, since it may be a password typed in the wrong place. */
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
        'other-user': { type: 'string' },
        'other-password-file': { type: 'string' },
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
