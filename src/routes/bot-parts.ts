import { realmOf } from '../authenticate/sessions/realm.ts';
import { watchSessions } from '../authenticate/sessions/session-watch.ts';
import { allowList } from '../bots/allow-list.ts';
import { type ConversationBlobs, conversationBlobs } from '../guard/conversation-blobs.ts';
import { type Conversations, conversations } from '../guard/conversations.ts';
import { nameHolders } from '../pace/holders.ts';
import { earlySlots, pacing } from '../pace/pacing.ts';
import { slotWaits } from '../pace/slot-waits.ts';
import { unsentMessages } from '../pace/unsent-messages.ts';
import { createHeartbeats } from '../relay/message/heartbeats.ts';
import { operationRequestBuilder } from '../relay/operations/operation-request.ts';
import { UNOBSERVED } from '../relay/upstream/relay-observer.ts';
import { createUpstream } from '../relay/upstream/send.ts';
import { selectedQuery, upstreamRequestBuilder } from '../relay/upstream/upstream-request.ts';
import { relayMetrics } from '../watch/relay-metrics.ts';
import { requireGroup } from './operation-group.ts';
import type { Parts } from './parts.ts';
import type { SharedSteps } from './shared-steps.ts';

/** Builds what the routes of a bot share, once. */
export function botParts(parts: Parts, shared: SharedSteps) {
  const { config, sessions: store, budgets, bots, upstreamUrl, open, held, logger, metrics } = parts;
  const upstream = { ...config.upstream, baseUrl: upstreamUrl };
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const observer = { ...UNOBSERVED, ...(metrics && relayMetrics(metrics)) };
  const { send } = createUpstream(upstreamUrl);
  const slots = slotWaits(budgets, rate);
  return {
    ...{ upstream, rate, send, operationRequest: operationRequestBuilder(upstream) },
    /** The steps of every route. */
    steps: {
      ...shared,
      logger,
      observer,
      allowedBot: allowList(config.bots),
      requireGroup: requireGroup(bots.groupsOf),
      conversations: conversationsOf(parts),
      blobs: blobsOf(parts),
      holdersOf: nameHolders({ realm: realmOf(config), guests: config.authMode === 'guest' }),
      paceMessage: pacing(slots, rate),
      // A slot in memory takes no round trip that something could share.
      askEarly: parts.redis && earlySlots(slots),
      unsent: unsentMessages(parts.unsent),
      keyRings: bots.keyRings,
    },
    /** What the routes whose answers are streams take besides. */
    streaming: {
      ...{ open, send, times: upstream },
      watch: watchSessions({ sessions: store, limits: config.session, endMessages: open.endSession }),
      upstreamRequest: upstreamRequestBuilder(upstream),
      forwardedQuery: (url: string) => selectedQuery(url, upstream.forwardQuery)?.toString() ?? '',
      holding: { maxBytes: upstream.maxHeldEventBytes, held, onUnheld: observer.unheldEvent },
      heartbeats: createHeartbeats(upstream.heartbeatMs),
    },
  };
}

function conversationsOf({ config, channelOwners, upstreamUrl }: Parts): Conversations {
  const channels = { ...config.channels, realm: channelRealm(config) };
  return conversations({ ...channels, owners: channelOwners, service: upstreamUrl });
}

/** Where the user ids come from to whom conversations belong. */
function channelRealm(config: Parts['config']): string {
  return config.channels.realm ?? realmOf(config);
}

function blobsOf({ config, blobs: given, bots }: Parts): ConversationBlobs {
  const takesFiles = (bot: string) => bots.groupsOf(bot).includes('files');
  return conversationBlobs({ given, realm: channelRealm(config), takesFiles });
}
