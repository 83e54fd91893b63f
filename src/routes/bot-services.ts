import { realmOf } from '../authenticate/sessions/session.ts';
import { watchSessions } from '../authenticate/sessions/session-watch.ts';
import { allowList } from '../bots/allow-list.ts';
import { type Bot, botName } from '../bots/bot.ts';
import type { Config } from '../config/config.ts';
import { causeOf } from '../errors.ts';
import { type ConversationBlobs, conversationBlobs } from '../guard/conversation-blobs.ts';
import { type Conversation, conversations } from '../guard/conversations.ts';
import { knownSandboxes } from '../guard/sandboxes.ts';
import type { Logger } from '../logger.ts';
import { bodyBytes } from '../pace/body-bytes.ts';
import { nameHolders } from '../pace/holders.ts';
import { LIVE_YIELD_MS, liveTurns } from '../pace/live-turns.ts';
import { memoryStreamLeases } from '../pace/memory-stream-leases.ts';
import { pacing } from '../pace/pacing.ts';
import { places } from '../pace/places.ts';
import { resumptionTurns } from '../pace/resumption-turns.ts';
import { type PacedRate, slotWaits } from '../pace/slot-waits.ts';
import { createHeartbeats } from '../relay/message/heartbeats.ts';
import type { HeldBytes } from '../relay/message/held-bytes.ts';
import type { OpenMessages } from '../relay/message/open-messages.ts';
import { MAX_HELD_EVENT_BYTES } from '../relay/message/whole-events.ts';
import { operationRequestBuilder } from '../relay/operations/operation-request.ts';
import { operationSender } from '../relay/operations/send-operation.ts';
import { UNOBSERVED } from '../relay/upstream/relay-observer.ts';
import { createUpstream } from '../relay/upstream/send.ts';
import { selectedQuery, upstreamRequestBuilder } from '../relay/upstream/upstream-request.ts';
import { conversationKey } from '../runs/run-name.ts';
import { userReaders } from '../runs/run-reader.ts';
import type { Runs } from '../runs/runs.ts';
import type { Metrics } from '../watch/metrics.ts';
import { relayMetrics } from '../watch/relay-metrics.ts';
import { requireGroup } from './bot-steps.ts';
import type { KnownBots, Stores } from './dependencies.ts';
import { messageHealing } from './message-healing.ts';
import { operationReader } from './operation-input.ts';
import { ownRequests } from './own-request.ts';
import { channelMetadata, ownSandboxes } from './own-sandbox.ts';
import { BODY_TIMEOUT_MS, type SharedSteps } from './shared-steps.ts';
import { suspendOnLeave } from './suspend-on-leave.ts';

/** How long no byte of an upload may come or go, and how long all of it may take, in ms. */
const UPLOAD_TIMES = { stallMs: 30_000, wholeMs: 600_000 };
/** How long no byte of a download may be sent to its client, and how long all of it may take, in ms. */
const FILE_TIMES = { stallMs: 60_000, wholeMs: 600_000 };
/** How many operations may be under way at once at this instance; for suspend, as many again. */
const MAX_OPERATIONS = { perUser: 32, perAddress: 256 };

/** What the services of bots are built from. Its caller closes what it has opened. */
export interface BotDependencies extends Pick<Stores, 'sessions' | 'budgets' | 'streams' | 'blobs'> {
  readonly config: Config;
  readonly logger: Logger;
  /** Undefined if metrics are not served. */
  readonly metrics: Metrics | undefined;
  readonly bots: KnownBots;
  /** The bot service, and its rate. */
  readonly upstreamUrl: Readonly<URL>;
  readonly rate: PacedRate;
  readonly open: OpenMessages;
  /** Counts what all streams together hold: parts of events, and what is kept to resume streams. */
  readonly held: HeldBytes;
  /** The runs of this instance. */
  readonly runs: Runs;
}

/** What the routes of a bot use, each built once. What refuses a request throws a Problem. */
export type BotServices = ReturnType<typeof botServices>;

/** Builds them. */
export function botServices(dependencies: BotDependencies, shared: SharedSteps) {
  const { config, sessions, budgets, bots, upstreamUrl, rate, open, held, logger, metrics, runs } =
    dependencies;
  const upstream = { ...config.upstream, baseUrl: upstreamUrl };
  const { responseTimeoutMs } = upstream;
  const observer = { ...UNOBSERVED, ...(metrics && relayMetrics(metrics)) };
  const { send } = createUpstream(upstreamUrl);
  const { keyRings } = bots;
  const paceMessage = pacing(slotWaits(budgets, rate), rate);
  const operationRequest = operationRequestBuilder(upstream);
  const sending = { keyRings, send, responseTimeoutMs, observer, logger };
  const askService = ownRequests({ ...sending, paceMessage, operationRequest });
  const scopes = conversations({ ...config.channels, realm: channelRealm(config) });
  const uploads = { maxBytes: config.maxUploadBytes, times: UPLOAD_TIMES };
  return {
    ...shared,
    ...{ logger, observer, open, keyRings, send, runs, paceMessage, operationRequest },
    watch: watchSessions({ sessions, limits: config.session, endMessages: open.endSession }),
    allowedBot: allowList(config.bots),
    requireGroup: requireGroup(bots.groupsOf),
    holdersOf: nameHolders({ realm: realmOf(config), guests: config.authMode === 'guest' }),
    conversations: scopes,
    blobs: blobsOf(dependencies),
    countBody: bodyBytes(config.maxBodyBytes),
    body: { maxBytes: config.maxBodyBytes, timeoutMs: BODY_TIMEOUT_MS },
    takePlace: places(dependencies.streams, config.maxStreams),
    takeOperationPlace: places(memoryStreamLeases(), MAX_OPERATIONS),
    takeLiveTurn: liveTurns(resumptionTurns(budgets, rate, LIVE_YIELD_MS)),
    /** Whether a message can join the run of another request. */
    canJoin: config.join.isOn,
    userReaders: userReaders(),
    observeJoin: (outcome: string) => metrics?.runsJoined.inc({ outcome }),
    upstreamRequest: upstreamRequestBuilder(upstream),
    /** The part of a URL's query that is passed on. */
    forwardedQuery: (url: string) => selectedQuery(url, upstream.forwardQuery)?.toString() ?? '',
    times: upstream,
    endEvents: upstream.endEvents,
    holding: { maxBytes: MAX_HELD_EVENT_BYTES, held, onUnheld: observer.unheldEvent },
    heartbeats: createHeartbeats(upstream.heartbeatMs),
    keepMessage: messageHealing({
      ...{ ...sending, held, resume: upstream.resume },
      takeResumptionTurn: resumptionTurns(budgets, rate),
    }),
    forgetRuns: runsForgetter(dependencies),
    suspendLeftRun: suspendOnLeave({
      ...{ askService, logger, observer, isOn: config.suspendOnLeave },
      timeoutMs: rate.maxWaitMs + responseTimeoutMs,
    }),
    ...ownSandboxes({ askMetadata: channelMetadata(askService), known: knownSandboxes() }),
    readOperation: operationReader({ conversations: scopes, bodyTimeoutMs: BODY_TIMEOUT_MS, uploads }),
    sendOperation: operationSender({ ...upstream, observer }),
    fileTimes: FILE_TIMES,
  };
}

/**
 * Makes the function that forgets the names of ended runs of a conversation. It never rejects, since the operation of
 * the service before it has succeeded.
 */
function runsForgetter({ runs, logger }: BotDependencies) {
  return async (bot: Bot, conversation: Conversation | undefined): Promise<void> => {
    if (!conversation) return;
    const endpoint = botName(bot);
    await runs.forget(conversationKey({ bot: endpoint, channel: conversation.upstream })).catch((error) => {
      logger.warn({ bot: endpoint, cause: causeOf(error) }, 'runs not forgotten');
    });
  };
}

/** Where the user ids come from to whom conversations belong. */
function channelRealm(config: Config): string {
  return config.channels.realm ?? realmOf(config);
}

function blobsOf({ config, blobs: given, bots }: BotDependencies): ConversationBlobs {
  const takesFiles = (bot: string) => bots.groupsOf(bot).includes('files');
  return conversationBlobs({ given, realm: channelRealm(config), takesFiles });
}
