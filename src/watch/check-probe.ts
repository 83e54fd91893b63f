import type { Request, RequestHandler } from 'express';
import type { Probe, ProbeTokens } from './probe-tokens.ts';

/** Where probes go, below the base path: load balancers take it for a message, and no bot has it. */
export const PROBE_PATH = '/generic/probe/message/sse';
/** The request header with a probe's token. */
export const PROBE_HEADER = 'x-bot-relay-probe';

/** Probes that are taken in one window: a check sends ten. */
const MAX_PROBES = 1_000;
const ALL = 'all';
/** How much of `X-Forwarded-For` is told, in addresses and characters of each. */
const [MAX_ADDRESSES, MAX_ADDRESS_LENGTH] = [10, 64];

export interface CheckProbeOptions {
  readonly tokens: Pick<ProbeTokens, 'read'>;
  /** Counts tokens, at all instances if `shared`. */
  readonly arrivals: { count(text: string): Promise<number>; of(text: string): Promise<number> };
  readonly shared: boolean;
  /** The address that a request counts for. */
  readonly addressOf: (req: Request) => string;
}

/**
 * Answers a probe of `check`, once: whom the relay takes the client for, how often another probe has come, or with the
 * failure that the probe asks for. Whatever else comes is left to the next stage, so that nobody sees that there is
 * something. Nothing here knows of sessions, bots and keys, and no body is read.
 */
export function checkProbe({ tokens, arrivals, shared, addressOf }: CheckProbeOptions): RequestHandler {
  async function accepted(req: Request): Promise<Probe | undefined> {
    const token = req.headers[PROBE_HEADER];
    if (typeof token !== 'string' || hasBody(req)) return undefined;
    const probe = await tokens.read(token);
    if (!probe || (await arrivals.count(ALL)) > MAX_PROBES) return undefined;
    return (await arrivals.count(probe.jti)) === 1 ? probe : undefined;
  }

  return async function checkProbe(req, res, next) {
    const probe = await accepted(req);
    if (!probe) return next();
    Object.assign(res.locals, { isProbe: true, route: req.path });
    if (probe.ask === 'client') res.json({ address: addressOf(req), forwarded: forwardedIn(req) });
    else if (probe.ask === 'arrivals') res.json({ arrivals: await arrivals.of(probe.of ?? ''), shared });
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
