import { tmpdir } from 'node:os';
import type { Express } from 'express';
import { knownSandboxes } from '../guard/known-sandboxes.ts';
import { LIVE_YIELD_MS, liveTurns } from '../pace/live-turns.ts';
import { memoryStreamLeases } from '../pace/memory-stream-leases.ts';
import { messagePlaces } from '../pace/message-places.ts';
import { places } from '../pace/places.ts';
import { resumptionTurns } from '../pace/resumption-turns.ts';
import { messageStarts } from '../relay/message/message-starts.ts';
import { operationSender } from '../relay/operations/send-operation.ts';
import { type SpoolOptions, type SpoolUpload, uploadSpool } from '../relay/operations/spool-upload.ts';
import { operationRoutes } from './bot-operations.ts';
import { botParts } from './bot-parts.ts';
import { channelMetadata } from './channel-metadata.ts';
import { goOnWith } from './go-on.ts';
import { forgetRuns, joiningOf } from './joining.ts';
import { liveRoute } from './live-stream.ts';
import { messageRoute } from './message.ts';
import { messageHealing } from './message-healing.ts';
import type { MessageRoute } from './message-parts.ts';
import { runRoute } from './message-run.ts';
import { logoutAnswer } from './oidc.ts';
import { operationReader } from './operation-input.ts';
import { operationRoute } from './operations.ts';
import { ownRequests } from './own-request.ts';
import { ownSandboxes } from './own-sandbox.ts';
import type { Parts } from './parts.ts';
import { route } from './route.ts';
import { logout, logoutAll, showSession } from './session.ts';
import { BODY_TIMEOUT_MS, type SharedSteps } from './shared-steps.ts';
import { suspendOnLeave } from './suspend-on-leave.ts';

/** How long no byte of an upload may come or go, and how long all of it may take, in ms. */
const UPLOAD_TIMES = { stallMs: 30_000, wholeMs: 600_000 };
/** How many bytes of uploads may be on disk at once, with UPLOADS=spool. */
const MAX_SPOOLED_BYTES = 2 ** 30;
/** How long no byte of a download may go down, and how long all of it may take, in ms. */
const FILE_TIMES = { stallMs: 60_000, wholeMs: 600_000 };
/** How many operations may be under way at once at this instance; for suspend, as many again. */
const MAX_OPERATIONS = { perUser: 32, perAddress: 256 };

/** How many messages may be read at once at this instance while all places for streams are taken. */
const MAX_BODIES = { perUser: 16, perAddress: 128 };

/** The routes of messages and of other operations of the bot service. */
export function botRoutes(app: Express, parts: Parts, shared: SharedSteps): void {
  const { config, budgets, streams, open, held } = parts;
  const { steps, streaming, upstream, rate, send, operationRequest } = botParts(parts, shared);
  const { responseTimeoutMs } = upstream;
  const joining = joiningOf(parts);
  const joins = { joining, forgetRuns: forgetRuns(joining, parts.logger) };
  const askService = ownRequests({ ...steps, operationRequest, send, responseTimeoutMs });
  const askMetadata = channelMetadata(askService);
  const sandboxes = ownSandboxes({ askMetadata, known: knownSandboxes() });
  const messageParts: MessageRoute = {
    ...{ ...steps, ...streaming, ...joins },
    askMetadata,
    takePlace: messagePlaces(places(streams, config.maxStreams), joining.runs && bodyPlaces()),
    body: { maxBytes: config.maxBodyBytes, timeoutMs: BODY_TIMEOUT_MS },
    starts: messageStarts(upstream),
    failures: config.failures,
    keepMessage: messageHealing({
      ...steps,
      ...{ resume: upstream.resume, responseTimeoutMs, held, send },
      takeResumptionTurn: resumptionTurns(budgets, rate),
    }),
    suspendLeftRun: suspendOnLeave({
      ...steps,
      isOn: config.suspendOnLeave,
      askService,
      timeoutMs: rate.maxWaitMs + responseTimeoutMs,
    }),
    endEvents: upstream.endEvents,
  };
  joining.runs?.whenTaken(goOnWith(messageParts));
  const message = messageRoute(messageParts);
  const uploads = { maxBytes: config.maxUploadBytes, times: UPLOAD_TIMES };
  const readOperation = operationReader({ ...{ ...steps, bodyTimeoutMs: BODY_TIMEOUT_MS }, uploads });
  const live = liveRoute({
    ...{ ...steps, ...streaming, readOperation, checkSandbox: sandboxes.checkSandbox },
    takePlace: places(streams, config.maxLiveStreams),
    takeTurn: liveTurns(resumptionTurns(budgets, rate, LIVE_YIELD_MS)),
  });
  const operation = operationRoute({
    ...{ ...steps, ...joins, open, watch: streaming.watch, operationRequest, ...sandboxes },
    takePlace: places(memoryStreamLeases(), MAX_OPERATIONS),
    fileTimes: FILE_TIMES,
    readOperation,
    spool: upstream.uploads === 'spool' ? spoolOf(uploads) : undefined,
    send: operationSender({ ...upstream, observer: steps.observer }),
  });
  const run = runRoute({ ...steps, ...streaming, ...joins });
  operationRoutes(app, config.basePath, { message, run, live, operation });
}

function spoolOf(uploads: Pick<SpoolOptions, 'maxBytes' | 'times'>): SpoolUpload {
  return uploadSpool({ ...uploads, roomBytes: MAX_SPOOLED_BYTES, folder: tmpdir() });
}

/** Places for bodies of messages whose users have no place for a stream: they may be joined. */
function bodyPlaces() {
  return places(memoryStreamLeases(), MAX_BODIES);
}

/** The routes of a session, for all ways to sign in. */
export function sessionRoutes(app: Express, { config, signIn }: Parts, steps: SharedSteps): void {
  const auth = `${config.basePath}/auth`;
  const own = { ...steps, logoutAnswer: signIn.mode === 'oidc' ? logoutAnswer(signIn.provider) : undefined };
  route(app, `${auth}/session`, { get: showSession(own) });
  route(app, `${auth}/logout`, { post: logout(own) });
  route(app, `${auth}/logout-all`, { post: logoutAll(own) });
}

/** The routes of additional pages, such as the chat page. */
export function pageRoutes(
  app: Express,
  { config, pages = [] }: Parts,
  { limitByAddress }: SharedSteps,
): void {
  for (const { path, handler } of pages) {
    route(app, config.basePath + path, {
      async get(req, res) {
        await limitByAddress(req, res);
        handler(req, res);
      },
    });
  }
}
