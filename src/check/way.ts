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
  /** Without one, only what needs no session is looked at. */
  readonly visitor: Visitor | undefined;
  /** Where the identity provider signs users in, if it is known. */
  readonly signInEndpoint: string | undefined;
  /** Has a value masked in everything that is reported from now on. */
  readonly hide: (value: string) => void;
  /** The message to send; none if there is no bot to ask, or no message is wanted. */
  readonly message: { readonly bot: string; readonly text: string } | undefined;
  /** Told of every message that leaves. */
  readonly onSend: () => void;
  /** How the same bot's answer came straight from the service, if it did. */
  readonly direct: Observation | undefined;
}

/** What every step on the way through the load balancer needs. */
export interface Way extends ThroughOptions {
  readonly client: ThroughClient;
  /** The path of the relay at the public address. */
  readonly base: string;
  readonly cookie: ReturnType<typeof cookieFlags>;
}

/** Reports the headers of an answer. What the load balancer calls itself is worth no more than a mention. */
export function reportHeaders(
  answer: Omit<Answer, 'text'>,
  { kind, report, quote, mask }: { kind: 'json' | 'stream' } & Pick<Way, 'report' | 'quote' | 'mask'>,
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

/** Reports an answer that is not what the step should bring. */
export function reportWrongAnswer(
  answer: Answer,
  { check, report, quote, advice }: { check: string; advice: string } & Pick<Way, 'report' | 'quote'>,
): void {
  report({ state: 'problem', check, says: `answered with ${quote(describeAnswer(answer))}`, advice });
}
