import type { IncomingHttpHeaders } from 'node:http';
import type { SessionWatch } from '../authenticate/sessions/session-watch.ts';
import type { Sessions } from '../authenticate/sessions/sessions.ts';
import type { PathParameters } from '../bots/allow-list.ts';
import type { Bot } from '../bots/bot.ts';
import type { ConversationBlobs } from '../guard/conversation-blobs.ts';
import type { Conversations } from '../guard/conversations.ts';
import type { BodyOptions } from '../http/read-body.ts';
import type { Logger } from '../logger.ts';
import type { AddressLimit } from '../pace/client-limits.ts';
import type { HoldersOf } from '../pace/holders.ts';
import type { TakeMessagePlace } from '../pace/message-places.ts';
import type { AskEarly, PacedMessage, Pacing } from '../pace/pacing.ts';
import type { RequestLimit } from '../pace/request-limits.ts';
import type { UnsentMessages } from '../pace/unsent-messages.ts';
import type { TimeLimits } from '../relay/message/deadlines.ts';
import type { Heartbeats } from '../relay/message/heartbeats.ts';
import type { MessageStarts } from '../relay/message/message-starts.ts';
import type { OpenMessages } from '../relay/message/open-messages.ts';
import type { HoldingLimits } from '../relay/message/whole-events.ts';
import type { KeyRings } from '../relay/upstream/key-rings.ts';
import type { RelayObserver } from '../relay/upstream/relay-observer.ts';
import type { Upstream, UpstreamRequest } from '../relay/upstream/send.ts';
import type { OutgoingMessage } from '../relay/upstream/upstream-request.ts';
import type { AskMetadata } from './channel-metadata.ts';
import type { ForgetRuns, Joining } from './joining.ts';
import type { KeepMessage } from './message-healing.ts';
import type { RequireGroup } from './operation-group.ts';
import type { SuspendLeftRun } from './suspend-on-leave.ts';

/** What the steps of a message need; each part is built once. */
export interface MessageRoute {
  readonly limitByAddress: AddressLimit;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: Pick<Sessions, 'keyOf' | 'read' | 'use' | 'confirm'>;
  readonly open: OpenMessages;
  readonly limitBySession: RequestLimit;
  readonly watch: SessionWatch;
  readonly allowedBot: (parameters: PathParameters) => Bot;
  readonly requireGroup: RequireGroup;
  readonly holdersOf: HoldersOf;
  readonly takePlace: TakeMessagePlace;
  readonly body: BodyOptions;
  readonly conversations: Pick<Conversations, 'ofMessage'>;
  readonly askMetadata: AskMetadata;
  readonly blobs: Pick<ConversationBlobs, 'check'>;
  readonly unsent: Pick<UnsentMessages, 'add'>;
  readonly paceMessage: (message: PacedMessage) => Pacing;
  /** Undefined if slots take no round trip. */
  readonly askEarly: AskEarly | undefined;
  /** The part of a URL's query that is passed on. */
  readonly forwardedQuery: (url: string) => string;
  readonly upstreamRequest: (message: OutgoingMessage) => UpstreamRequest;
  readonly keyRings: Pick<KeyRings, 'ringOf' | 'keys'>;
  readonly send: Upstream['send'];
  readonly times: TimeLimits;
  readonly starts: MessageStarts;
  /** How failures are answered after a message has left for the bot service. */
  readonly failures: 'status' | 'stream';
  readonly keepMessage: KeepMessage;
  readonly joining: Joining;
  readonly forgetRuns: ForgetRuns;
  readonly suspendLeftRun: SuspendLeftRun;
  readonly holding: HoldingLimits;
  readonly endEvents: boolean;
  readonly heartbeats: Heartbeats;
  readonly observer: RelayObserver;
  readonly logger: Logger;
}
