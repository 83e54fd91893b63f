import type { cookieFlags } from '../authenticate/sessions/session-cookie.ts';
import type { Config } from '../config/config.ts';
import type { Secret } from '../secret.ts';
import type { Report } from './findings.ts';
import { describeAnswer, headerFaults } from './judge-answer.ts';
import type { Observation } from './observe-stream.ts';
import type { Answer, ThroughClient } from './through-client.ts';

/** Who signs in: a user with a password, or a guest. */
export type Visitor = { readonly user: string; readonly password: Secret } | 'guest';

export interface ThroughOptions {
  readonly config: Config;
  /** The public address, an origin. */
  readonly through: Readonly<URL>;
  readonly report: Report;
  readonly quote: (text: string) => string;
  /** Masks every secret that is known by now. */
  readonly mask: (text: string) => string;
  /** Without one, only what needs no session is checked. */
  readonly visitor: Visitor | undefined;
  /** A second one, who must not see what the first one has. */
  readonly otherVisitor: Visitor | undefined;
  /** The provider's address for signing in, if it is known. */
  readonly signInEndpoint: string | undefined;
  /** Makes everything that is reported from now on mask this value. */
  readonly hide: (value: string) => void;
  /** The bot to call, `namespace/bot`. */
  readonly bot: string | undefined;
  /** The other bots of the check, of which only the configuration is looked at. */
  readonly otherBots: readonly string[];
  /** What the message says; `undefined` if none is to be sent. */
  readonly text: string | undefined;
  /** Whether the second visitor may send a message with a file of the first one. */
  readonly sendsForeignFile: boolean;
  /** Called for every message that is sent. */
  readonly onSend: () => void;
  /** How the answer of the same bot arrived directly from the service, if one did. */
  readonly direct: Observation | undefined;
}

/** What every step of the check through the load balancer needs. */
export interface ThroughContext extends ThroughOptions {
  readonly client: ThroughClient;
  /** The path of the relay at the public address. */
  readonly base: string;
  readonly cookie: ReturnType<typeof cookieFlags>;
}

/** Reports the headers of an answer. A `Server` header of the load balancer is only mentioned. */
export function reportHeaders(
  answer: Omit<Answer, 'text'>,
  {
    kind,
    report,
    quote,
    mask,
  }: { kind: 'json' | 'stream' } & Pick<ThroughContext, 'report' | 'quote' | 'mask'>,
): void {
  const faults = headerFaults(answer, kind);
  const text = JSON.stringify(answer.headers);
  if (mask(text) !== text) faults.push('one of them holds a secret');
  const { server } = answer.headers;
  const named = server === undefined ? '' : `; Server says ${quote(String(server))}`;
  const about = kind === 'json' ? 'sign-in' : 'message';
  if (faults.length === 0)
    report({ state: 'ok', check: 'headers', about, says: `as they should be${named}` });
  else {
    const advice = 'Let the load balancer pass the headers of the relay on, add none and compress nothing.';
    report({ state: 'problem', check: 'headers', about, says: faults.join('; '), advice });
  }
}

/** Reports an answer that is not the expected one. */
export function reportWrongAnswer(
  answer: Answer,
  {
    check,
    report,
    quote,
    advice,
  }: { check: string; advice: string } & Pick<ThroughContext, 'report' | 'quote'>,
): void {
  report({ state: 'problem', check, says: `answered with ${quote(describeAnswer(answer))}`, advice });
}
