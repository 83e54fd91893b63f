import { problemOf } from './judge-answer.ts';
import type { ThroughContext } from './through-context.ts';

/** A name that cannot exist (RFC 6761 §6.4). */
const FOREIGN = 'bot-relay-check.invalid';

/** Reports whether a request for a foreign name gets through the load balancer, and is answered by the relay. */
export async function checkForeignHost({ client, base, report }: ThroughContext): Promise<void> {
  const check = 'foreign host';
  // A load balancer may close the connection without an answer.
  const answer = await client
    .call({ method: 'GET', path: `${base}/auth/session`, headers: { Host: FOREIGN } })
    .catch(() => undefined);
  const code = answer && problemOf(answer)?.code;
  if (code === 'unknown_host') report({ state: 'ok', check, says: 'the relay refuses it' });
  else if (code === undefined) report({ state: 'ok', check, says: 'does not get through to the relay' });
  else {
    const advice =
      'Let the load balancer route by host name, your own names only; or set ALLOWED_HOSTS, and the relay refuses others.';
    report({ state: 'note', check, says: 'a request for any name gets through to the relay', advice });
  }
}
