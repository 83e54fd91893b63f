import { z } from 'zod';
import { PROBE_HEADER, PROBE_PATH } from '../watch/check-probe.ts';
import { FAILURES, type ProbeAsk, type ProbeTokens, probeTokens } from '../watch/probe-tokens.ts';
import { describeAnswer, problemOf } from './judge-answer.ts';
import { CLAIMED_ADDRESS, clientFinding, failuresFinding, type SeenFailure } from './judge-probes.ts';
import type { Answer } from './through-client.ts';
import type { ThroughContext } from './through-context.ts';

const HOW: Readonly<Record<(typeof FAILURES)[number], string>> = {
  500: 'a 500',
  502: 'a 502',
  504: 'a 504',
  cut: 'a cut connection',
};

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
  const tokens = probeTokens(context.config.session.secrets);
  if (await checkClaimedAddress(context, tokens)) await checkFailures(context, tokens);
}

/** Returns whether the relay knows our probes. */
async function checkClaimedAddress(context: ThroughContext, tokens: ProbeTokens): Promise<boolean> {
  const { report, config, quote } = context;
  const check = 'client address';
  const { token } = await tokens.sign({ ask: 'client' });
  const answer = await send(context, token, { 'X-Forwarded-For': CLAIMED_ADDRESS });
  const seen = read(answer, clientSchema);
  if (seen) report({ check, ...clientFinding(seen, config.trustProxy) });
  else {
    const says = `neither it nor whether a POST is sent again was proven: the probe is answered with ${quote(describeAnswer(answer))}`;
    report({ state: 'note', check, says, advice: adviceOn(answer) });
  }
  return seen !== undefined;
}

async function checkFailures(context: ThroughContext, tokens: ProbeTokens): Promise<void> {
  const failures: SeenFailure[] = [];
  let shared = true;
  for (const ask of FAILURES) {
    const { token, jti } = await tokens.sign({ ask });
    // The probe is meant to fail; it does not matter how.
    await send(context, token).catch(() => {});
    const seen = await arrivalsOf(context, tokens, jti);
    failures.push({ how: HOW[ask], isCut: ask === 'cut', arrivals: seen?.arrivals ?? 0 });
    shared &&= seen?.shared ?? true;
  }
  context.report({ check: 'sent again', ...failuresFinding(failures, shared) });
}

async function arrivalsOf(context: ThroughContext, tokens: ProbeTokens, of: string) {
  const question: ProbeAsk = { ask: 'arrivals', of };
  return read(await send(context, (await tokens.sign(question)).token), arrivalsSchema);
}

function send(
  { client, base }: ThroughContext,
  token: string,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const identity = { 'Accept-Encoding': 'identity', 'Content-Length': '0' };
  return client.call({
    method: 'POST',
    path: base + PROBE_PATH,
    headers: { ...identity, ...headers, [PROBE_HEADER]: token },
  });
}

function read<T>({ status, text }: Answer, schema: z.ZodType<T>): T | undefined {
  if (status !== 200) return undefined;
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}

function adviceOn(answer: Answer): string {
  switch (problemOf(answer)?.code) {
    case 'not_found':
      return 'The running relay has other SESSION_SECRETS or another clock than this check, or is older than it.';
    case undefined:
      return 'Let the load balancer hand every path below /generic/ to the relay, with all headers.';
    default:
      return 'Look for this request in the log of the relay, and try again.';
  }
}
