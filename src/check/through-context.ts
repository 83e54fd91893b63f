import type { IncomingHttpHeaders } from 'node:http';
import type { cookieFlags } from '../authenticate/sessions/session-cookie.ts';
import type { Config } from '../config/config.ts';
import { type Answer, describeAnswer, headerFaults } from './answers.ts';
import type { HttpClient } from './http-client.ts';
import type { Observation } from './observe-stream.ts';
import type { About, CheckReport } from './report.ts';
import type { Visitors } from './visitors.ts';

export interface ThroughOptions extends Visitors {
  readonly config: Config;
  readonly report: CheckReport;
  /** The public address, an origin. */
  readonly through: Readonly<URL>;
  /** The provider's address for signing in, if it is known. */
  readonly signInEndpoint: string | undefined;
  /** The bot to call, `namespace/bot`. */
  readonly bot: string | undefined;
  /** What the message says; `undefined` if none is to be sent. */
  readonly text: string | undefined;
  /** How the answer of the same bot arrived directly from the service, if one did. */
  readonly direct: Observation | undefined;
}

/** What every step of the check through the load balancer needs. */
export interface ThroughContext extends ThroughOptions {
  readonly client: HttpClient;
  /** The path of the relay at the public address. */
  readonly base: string;
  readonly cookie: ReturnType<typeof cookieFlags>;
}

/** Reports the headers of an answer to `about`. */
export function reportHeaders(
  headers: IncomingHttpHeaders,
  about: 'sign-in' | 'message',
  report: CheckReport,
): void {
  const { ok, problem } = report.about('headers', about);
  const faults = headerFaults(headers, about === 'message' ? 'stream' : 'json');
  const text = JSON.stringify(headers);
  if (report.mask(text) !== text) faults.push('one of them holds a secret');
  const advice = 'Let the load balancer pass the headers of the relay on, add none and compress nothing.';
  if (faults.length === 0) ok('as they should be');
  else problem(faults.join('; '), advice);
}

/** Reports an answer that is not the expected one. */
export function reportWrong(answer: Answer, { problem }: Pick<About, 'problem'>, advice: string): void {
  problem(`answered with ${describeAnswer(answer)}`, advice);
}
