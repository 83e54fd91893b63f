import type { Express, Request, RequestHandler, Response } from 'express';
import { realmOf } from '../authenticate/sessions/realm.ts';
import { Problem } from '../errors.ts';
import { allowList } from '../guard/allowed-bot.ts';
import { CLIENT_LEFT } from '../http/client-left.ts';
import type { EndpointSlot, LiveSession } from '../http/locals.ts';
import { JITTER_MS, limitFor } from '../pace/budgets.ts';
import { type PacedRate, type SlotWaits, slotWaits } from '../pace/slot-waits.ts';
import { operationRequests, PATH_SHAPES } from '../relay/operations/operation-request.ts';
import { operationSender } from '../relay/operations/send-operation.ts';
import { keyPart } from '../storage/redis-key.ts';
import { relayMetrics } from '../watch/relay-metrics.ts';
import { type OperationRoute, type OperationSlots, suspendPath, suspendRoute } from './operations.ts';
import type { Parts } from './parts.ts';
import { route } from './route.ts';

export interface SharedStages {
  readonly byAddress: RequestHandler;
  readonly origin: RequestHandler;
  /** They find the session, one after the other. */
  readonly session: readonly RequestHandler[];
  readonly bySession: RequestHandler;
}

/** The routes of the service's ordinary operations, whose steps are made of the stages of the other routes. */
export function operationRoutes(app: Express, parts: Parts, stages: SharedStages): void {
  const { config, budgets, bots, upstreamUrl, logger, metrics } = parts;
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const upstream = { ...config.upstream, baseUrl: upstreamUrl };
  const realm = realmOf(config);
  const guests = config.authMode === 'guest';
  const suspend = suspendRoute({
    ...stepsOf(stages, config.bots),
    holdersOf: (userId, address) => ({
      user: keyPart(`${realm} ${userId}`),
      ...(guests && { address: keyPart(`address ${address}`) }),
    }),
    paceOperation: paceOperations(slotWaits(budgets, rate), rate),
    operationRequest: operationRequests(upstream),
    keyRings: bots.keyRings,
    send: operationSender({ ...upstream, observer: metrics && relayMetrics(metrics) }),
    logger,
  });
  for (const shape of PATH_SHAPES) {
    const steps = suspend(shape);
    const handler: RequestHandler = (req, res) =>
      steps(req, res).catch((error: unknown) => {
        if (error !== CLIENT_LEFT) throw error;
      });
    route(app, config.basePath + suspendPath(shape), { post: [stages.byAddress, stages.origin, handler] });
  }
}

type Steps = Pick<
  OperationRoute,
  'limitByAddress' | 'checkOrigin' | 'sessions' | 'limitBySession' | 'allowedBot'
>;

/** Limits by address and the origin's check stand before the route, as stages. */
function stepsOf({ session, bySession }: SharedStages, patterns: readonly string[]): Steps {
  return {
    limitByAddress: async () => {},
    checkOrigin: () => {},
    sessions: {
      async require(req) {
        const res = req.res as Response;
        for (const stage of session) await pass(stage, req, res);
        const { id, user } = res.locals.session as LiveSession;
        return { key: id, user };
      },
    },
    limitBySession: (req, res) => pass(bySession, req, res),
    allowedBot: allowList(patterns),
  };
}

/** Paces requests that are no messages: they are sent once for each key, and put nobody on trial. */
function paceOperations(slots: SlotWaits, rate: PacedRate): OperationRoute['paceOperation'] {
  return function paceOperation({ endpoint, holders: { user, address }, signal, log }): OperationSlots {
    let slot: EndpointSlot | undefined;
    async function take(): Promise<Record<string, string>> {
      const askedAt = performance.now();
      try {
        const holders = address === undefined ? [user] : [user, address];
        const turn = await slots.take({ endpoint, holders }, signal);
        slot = turn.slot;
        const { remaining, resetMs, waitMs } = turn.reservation;
        const headers = {
          'RateLimit-Policy': `"endpoint";q=${limitFor(rate, endpoint)};w=${seconds(rate.windowMs)}`,
          RateLimit: `"endpoint";r=${remaining};t=${seconds(Math.max(0, resetMs - JITTER_MS))}`,
        };
        if (slot) return headers;
        const detail = 'This bot gets as many requests as it takes right now; try again.';
        throw new Problem('rate_limited', detail, { retryAfter: seconds(waitMs), headers });
      } finally {
        log.slotWaitMs = (log.slotWaitMs ?? 0) + performance.now() - askedAt;
        if (slot) log.slot = slot;
      }
    }
    return {
      start: take,
      oneMore: async () => void (await take()),
      sent: () => slot && slots.sent(slot),
    };
  };
}

/** Resolves when `stage` lets the request pass; rejects with what it passes on or throws. */
function pass(stage: RequestHandler, req: Request, res: Response): Promise<void> {
  return new Promise((resolve, reject) => {
    const next = (error?: unknown) => (error === undefined ? resolve() : reject(error));
    Promise.resolve(stage(req, res, next)).catch(reject);
  });
}

const seconds = (ms: number) => Math.ceil(ms / 1000);
