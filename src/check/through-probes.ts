import { z } from 'zod';
import type { Config } from '../config/config.ts';
import { PROBE_HEADER, PROBE_PATH } from '../watch/check-probe.ts';
import { FAILURES, type ProbeAsk, type ProbeTokens, probeTokens } from '../watch/probe-tokens.ts';
import { adviceOnProblem } from './advice.ts';
import { type Answer, describeAnswer, jsonOf, problemOf } from './answers.ts';
import { count, note, ok, problem, type Verdict } from './report.ts';
import type { ThroughContext } from './through-context.ts';

/** An address of a network that nobody uses (RFC 5737). */
export const CLAIMED_ADDRESS = '203.0.113.77';

const clientSchema = z.object({
  address: z.string().max(64),
  forwarded: z.array(z.string().max(64)).max(10),
});
const arrivalsSchema = z.object({ arrivals: z.number(), shared: z.boolean() });

/**
 * Checks what cannot be seen from outside: whether the load balancer lets clients claim an address, and whether it sends
 * a POST again. Uses probes with a signed token, which the relay answers only for a check.
 */
export async function checkProbes(context: ThroughContext): Promise<void> {
  const { report, config } = context;
  const tokens = probeTokens(config.session.secrets);
  const { token } = await tokens.sign({ ask: 'client' });
  const answer = await send(context, token, { 'X-Forwarded-For': CLAIMED_ADDRESS });
  const seen = clientSchema.safeParse(jsonOf(answer.text)).data;
  const about = report.about('client address');
  if (answer.status === 200 && seen) {
    about.add(clientVerdict(seen, config.trustProxy));
    await checkFailures(context, tokens);
  } else {
    const says = `neither it nor whether a POST is sent again was proven: the probe is answered with ${report.quote(describeAnswer(answer))}`;
    about.note(says, adviceOn(answer));
  }
}

async function checkFailures(context: ThroughContext, tokens: ProbeTokens): Promise<void> {
  const failures: SeenFailure[] = [];
  let shared = true;
  for (const ask of FAILURES) {
    const { token, jti } = await tokens.sign({ ask });
    // The probe is meant to fail; it does not matter how.
    await send(context, token).catch(() => {});
    const question: ProbeAsk = { ask: 'arrivals', of: jti };
    const { text } = await send(context, (await tokens.sign(question)).token);
    const seen = arrivalsSchema.safeParse(jsonOf(text)).data;
    failures.push({ ask, arrivals: seen?.arrivals ?? 0 });
    shared &&= seen?.shared ?? true;
  }
  context.report.about('sent again').add(failuresVerdict(failures, shared));
}

function send(
  { client, base }: ThroughContext,
  token: string,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const identity = { 'Accept-Encoding': 'identity', 'Content-Length': '0', [PROBE_HEADER]: token };
  return client.call({ method: 'POST', path: base + PROBE_PATH, headers: { ...identity, ...headers } });
}

/**
 * Judges whether a client can claim any address, or all clients count as one. `address` is the one that the relay took,
 * `forwarded` are those in `X-Forwarded-For`, the nearest last.
 */
export function clientVerdict(
  { address, forwarded }: z.infer<typeof clientSchema>,
  trustProxy: Config['trustProxy'],
): Verdict {
  // Every proxy that extends the header adds one address. The claimed address, if it was kept, is the first.
  const added = forwarded.length - (forwarded[0] === CLAIMED_ADDRESS ? 1 : 0);
  if (address === CLAIMED_ADDRESS) {
    const says = 'the relay believes an X-Forwarded-For that a client sends: anybody can be any address';
    return problem(says, adviceOnClaim(added, trustProxy));
  }
  if (typeof trustProxy !== 'object' && added > Number(trustProxy)) {
    const isSet = trustProxy === false ? 'is not set' : `is ${trustProxy}`;
    const says = `all clients count as one, ${address}: ${count(added, 'proxy', 'proxies')} said who the client is, and TRUST_PROXY ${isSet}`;
    return problem(says, `Set TRUST_PROXY to ${added}.`);
  }
  return ok(`an X-Forwarded-For of its own is not believed; this machine is ${address}`);
}

function adviceOnClaim(added: number, trustProxy: Config['trustProxy']): string {
  if (!added)
    return (
      'The load balancer passes the header on as it came. Let it overwrite it (nginx: proxy_set_header ' +
      'X-Forwarded-For $remote_addr; HAProxy: http-request set-header X-Forwarded-For %[src]; Caddy: no header_up for it).'
    );
  return typeof trustProxy === 'object'
    ? "Take this machine's network out of TRUST_PROXY, which names the load balancers alone; or let the load balancer overwrite the header."
    : `Set TRUST_PROXY to ${added}, the number of proxies that add an address; it is ${trustProxy}.`;
}

/** How often a probe that was made to fail arrived at the relay. */
export interface SeenFailure {
  readonly ask: (typeof FAILURES)[number];
  readonly arrivals: number;
}

/** Judges whether the load balancer sends failed requests again. `shared`: all instances count together. */
export function failuresVerdict(seen: readonly SeenFailure[], shared: boolean): Verdict {
  const how = ({ ask }: SeenFailure) => (ask === 'cut' ? 'a cut connection' : `a ${ask}`);
  const again = seen.filter(({ arrivals }) => arrivals > 1);
  if (again.length > 0) {
    const times = again.map((one) => `${count(one.arrivals, 'time')} after ${how(one)}`).join(', ');
    // The relay answers a message that it has sent with 200, so that only a cut fails it.
    const harm = again.some(({ ask }) => ask === 'cut')
      ? 'a message would run, and be paid, as often'
      : 'an operation, or the resumption of a message, would be done as often';
    const advice =
      'Let the load balancer send nothing again that it has sent (nginx: no non_idempotent in proxy_next_upstream; ' +
      'HAProxy: retry-on conn-failure; Caddy: no POST in lb_retry_match).';
    return problem(`a POST that had failed came again (${times}): ${harm}`, advice);
  }
  const lost = seen.filter(({ arrivals }) => arrivals === 0).map(how);
  if (lost.length > 0) {
    const says = `not proven: the instance that was asked has not seen the POST that failed with ${lost.join(', ')}`;
    const advice = shared
      ? 'Look at what the load balancer does with a POST below /generic/.'
      : 'Set REDIS_URL: without it, instances do not count together.';
    return note(says, advice);
  }
  const says = `a POST came once: ${seen.map(how).join(', ')}`;
  if (shared) return ok(says);
  const advice = 'Without REDIS_URL only one instance was checked; what the others received is not known.';
  return note(says, advice);
}

function adviceOn(answer: Answer): string {
  return adviceOnProblem(problemOf(answer)?.code, {
    none: 'Let the load balancer hand every path below /generic/ to the relay, with all headers.',
    not_found:
      'The running relay has other SESSION_SECRETS or another clock than this check, or is older than it.',
  });
}
