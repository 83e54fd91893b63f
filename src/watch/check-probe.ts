import type { Request, RequestHandler } from 'express';
import type { Probe, ProbeTokens } from './probe-tokens.ts';

/** The path of probes, below the base path: to a load balancer it looks like a message, and no bot has it. */
export const PROBE_PATH = '/generic/probe/message/sse';
/** The request header with a probe's token. */
export const PROBE_HEADER = 'x-bot-relay-probe';

/** How many probes are answered in one window; a check sends ten. */
const MAX_PROBES = 1_000;
const ALL = 'all';
/** How much of `X-Forwarded-For` an answer repeats: how many addresses, and how many characters of each. */
const [MAX_ADDRESSES, MAX_ADDRESS_LENGTH] = [10, 64];

export interface CheckProbeOptions {
  readonly tokens: Pick<ProbeTokens, 'read'>;
  /** Counts tokens, at all instances if `shared`. */
  readonly arrivals: { add(text: string): Promise<number>; countOf(text: string): Promise<number> };
  readonly shared: boolean;
  /** The address that a request counts for. */
  readonly addressOf: (req: Request) => string;
}

/**
 * Answers a probe of `check`, once: with the client address that the relay sees, with the number of arrivals of another
 * probe, or with the failure that the probe asks for. Every other request goes to the next stage, so that it does not
 * show that this path exists. This handler uses no sessions, bots or keys, and reads no body.
 */
export function checkProbe({ tokens, arrivals, shared, addressOf }: CheckProbeOptions): RequestHandler {
  async function accepted(req: Request): Promise<Probe | undefined> {
    const token = req.headers[PROBE_HEADER];
    if (typeof token !== 'string' || hasBody(req)) return undefined;
    const probe = await tokens.read(token);
    if (!probe || (await arrivals.add(ALL)) > MAX_PROBES) return undefined;
    return (await arrivals.add(probe.jti)) === 1 ? probe : undefined;
  }

  return async function checkProbe(req, res, next) {
    const probe = await accepted(req);
    if (!probe) return next();
    Object.assign(res.locals, { isProbe: true, route: req.path });
    if (probe.ask === 'client') res.json({ address: addressOf(req), forwarded: forwardedIn(req) });
    else if (probe.ask === 'arrivals') res.json({ arrivals: await arrivals.countOf(probe.of ?? ''), shared });
    else if (probe.ask === 'cut') req.socket.destroy();
    else res.status(Number(probe.ask)).end();
  };
}

function forwardedIn({ headers }: Request): string[] {
  const addresses = String(headers['x-forwarded-for'] ?? '').split(',', MAX_ADDRESSES);
  return addresses.map((text) => text.trim().slice(0, MAX_ADDRESS_LENGTH)).filter((text) => text !== '');
}

function hasBody({ headers }: Request): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}
