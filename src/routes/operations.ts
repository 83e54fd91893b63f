import type { IncomingHttpHeaders } from 'node:http';
import type { Request, Response } from 'express';
import { type Bot, botName } from '../bots/bot.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-left.ts';
import { readQuery } from '../http/read-query.ts';
import { refuseBody } from '../http/refuse-body.ts';
import type { Logger } from '../logger.ts';
import type { Holders } from '../pace/holders.ts';
import type { PacedMessage, Pacing } from '../pace/pacing.ts';
import type { OperationAnswer } from '../relay/operations/judge-operation.ts';
import type {
  AcceptedOperation,
  OperationRequest,
  PathShape,
} from '../relay/operations/operation-request.ts';
import type { SendOperation } from '../relay/operations/send-operation.ts';
import { SUSPEND } from '../relay/operations/suspend.ts';
import type { KeyRings } from '../relay/upstream/key-rings.ts';
import { keysRefused, messageKeys } from '../relay/upstream/message-keys.ts';
import { maskKeys } from '../relay/upstream/upstream-request.ts';
import type { Steps } from './route.ts';

/** The path of `POST …/message/suspend` in one of its shapes, below the base path. */
export const suspendPath = (shape: PathShape) =>
  `${shape}/:namespace/bot-provider/:botProviderName/${SUSPEND.path}`;

/** What the steps of an operation are made of; each is built once, and refuses by a thrown Problem. */
export interface OperationRoute {
  readonly limitByAddress: (req: Request, res: Response) => Promise<void>;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: {
    require(req: Request): Promise<{ readonly key: string; readonly user: { readonly id: string } }>;
  };
  readonly limitBySession: (req: Request, res: Response, key: string) => Promise<void>;
  readonly allowedBot: (parameters: Request['params']) => Bot;
  readonly holdersOf: (userId: string, address: string) => Holders;
  readonly paceMessage: (message: PacedMessage) => Pacing;
  readonly operationRequest: (accepted: AcceptedOperation) => OperationRequest;
  readonly keyRings: Pick<KeyRings, 'ringOf' | 'keys'>;
  readonly send: SendOperation;
  readonly logger: Logger;
}

/** `POST …/message/suspend`, which stops the run of a channel: its way from top to bottom. */
export function suspendRoute(route: OperationRoute): (shape: PathShape) => Steps {
  return (shape) =>
    async function suspend(req: Request, res: Response): Promise<void> {
      await route.limitByAddress(req, res);
      route.checkOrigin(req.headers);
      const session = await route.sessions.require(req);
      res.locals.userId = session.user.id;
      await route.limitBySession(req, res, session.key);
      const bot = route.allowedBot(req.params);
      res.locals.bot = botName(bot);
      refuseBody(req.headers);
      const query = readQuery(req.url, SUSPEND.query);
      const { headers } = req;
      const ids = { requestId: res.locals.requestId, userId: session.user.id };
      const request = route.operationRequest({ operation: SUSPEND, shape, bot, query, headers, ...ids });
      const { signal } = abortWhenLeft(res);
      const slots = route.paceMessage({
        endpoint: `${botName(bot)}/${SUSPEND.path}`,
        holders: route.holdersOf(session.user.id, clientAddress(req)),
        ...{ signal, log: res.locals },
      });
      setHeaders(res, await slots.start());
      answer(res, await sendOperationUntilTaken(route, { req, res, bot, request, slots, signal }));
    };
}

/** A request that has passed all checks and has its slot. */
interface Sending {
  readonly req: Request;
  readonly res: Response;
  readonly bot: Bot;
  readonly request: OperationRequest;
  readonly slots: Pacing;
  readonly signal: AbortSignal;
}

/** The one loop around the sending: a refused key is the only reason to go round again. */
async function sendOperationUntilTaken(route: OperationRoute, sending: Sending): Promise<OperationAnswer> {
  const { req, res, bot, request, slots, signal } = sending;
  const ring = route.keyRings.ringOf(botName(bot));
  // The request keeps these until it is answered, whatever becomes of the configuration.
  const mask = maskKeys([...ring.keys, ...route.keyRings.keys()]);
  const keys = messageKeys(ring, route.logger, res.locals.requestId);
  const onStatus = (status: number) => {
    res.locals.upstreamStatus = status;
  };
  for (;;) {
    const key = keys.next();
    const attempt = { request, key, mask, signal, onSent: slots.sent, onStatus };
    const verdict = await route.send(req, res, attempt);
    if (verdict !== 'key_refused') {
      keys.accepted();
      return verdict;
    }
    if (!keys.refused()) throw keysRefused();
    await slots.oneMore();
  }
}

/** Nothing of the service's answer goes down but what the verdict names. */
function answer(res: Response, { status, headers, body }: OperationAnswer): void {
  res.statusCode = status;
  setHeaders(res, headers);
  if (body !== '') res.setHeader('Content-Length', Buffer.byteLength(body));
  res.end(body);
}

function setHeaders(res: Response, headers: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
}
