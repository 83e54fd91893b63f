import type { Request, Response } from 'express';
import type { SessionWatch } from '../authenticate/sessions/session-watch.ts';
import { type Bot, botName } from '../bots/bot.ts';
import type { PathShape } from '../bots/bot-path.ts';
import type { ConversationBlobs } from '../guard/conversation-blobs.ts';
import type { Conversation } from '../guard/conversations.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-left.ts';
import type { CarriedStream } from '../http/locals.ts';
import { setHeaders } from '../http/set-headers.ts';
import { type HoldersOf, holdersApart } from '../pace/holders.ts';
import type { PacedMessage, Pacing } from '../pace/pacing.ts';
import type { TakePlace } from '../pace/places.ts';
import type { UnsentMessages } from '../pace/unsent-messages.ts';
import type { OperationAnswer } from '../relay/operations/judge-operation.ts';
import { asOperationLost } from '../relay/operations/operation-lost.ts';
import { endpointOf, type Operation, SUSPEND } from '../relay/operations/operation-table.ts';
import { type PipeFileOptions, pipeFile } from '../relay/operations/pipe-file.ts';
import { sendBody } from '../relay/operations/send-body.ts';
import type { SpoolUpload } from '../relay/operations/spool-upload.ts';
import type { RelayObserver } from '../relay/upstream/relay-observer.ts';
import { type BotFinding, findBot } from './find-bot.ts';
import { findSession, type SessionFinding } from './find-session.ts';
import type { ForgetRuns } from './joining.ts';
import { withPlace } from './judged-later.ts';
import { operationForm } from './operation-form.ts';
import type { OperationInput, ReadOperation } from './operation-input.ts';
import {
  type Sending,
  type SendingParts,
  type SentOperation,
  sendOperationUntilTaken,
} from './operation-sending.ts';
import type { OwnSandboxes } from './own-sandbox.ts';
import type { Steps } from './route.ts';

/** How long a client may take to read an answer other than a file, in ms: it is in memory, and keeps its place. */
const ANSWER_TIMES = { stallMs: 30_000, wholeMs: 120_000 };

/** What the steps of an operation need; each part is built once, and refuses by a thrown Problem. */
export interface OperationRoute extends SessionFinding, BotFinding, SendingParts, OwnSandboxes {
  readonly sessions: SessionFinding['sessions'] & BotFinding['sessions'];
  readonly watch: SessionWatch;
  readonly takePlace: TakePlace;
  readonly readOperation: ReadOperation;
  readonly holdersOf: HoldersOf;
  readonly unsent: Pick<UnsentMessages, 'stop'>;
  readonly paceMessage: (message: PacedMessage) => Pacing;
  /** Given if forms are read to disk before they are sent. */
  readonly spool: SpoolUpload | undefined;
  readonly blobs: Pick<ConversationBlobs, 'remember'>;
  readonly observer: Pick<RelayObserver, 'transferred'>;
  /** The limits of a download. */
  readonly fileTimes: PipeFileOptions['times'];
  readonly forgetRuns: ForgetRuns;
}

/** An ordinary operation of the bot service, one request and one short answer: its steps from top to bottom. */
export function operationRoute(route: OperationRoute): (operation: Operation, shape: PathShape) => Steps {
  return (operation, shape) =>
    async function operate(req: Request, res: Response): Promise<void> {
      const stop = abortWhenLeft(res);
      const releases: (() => void)[] = [];
      try {
        const missedRemovals = route.watch.missedRemovals();
        const session = await findSession(route, { req, res, stop, releases, kind: 'operation' });
        const userId = session.user.id;
        const bot = await findBot(route, { req, res, session, group: operation.group });
        const holders = route.holdersOf(userId, () => clientAddress(req));
        // A suspend has places of its own: it must work while others hang.
        const kind = operation === SUSPEND ? 'suspend' : 'operation';
        const [, release] = await withPlace(
          route.sessions.confirm(session),
          route.takePlace(holdersApart(kind, holders)),
          (giveBack) => giveBack(),
        );
        releases.push(release, route.watch.follow({ session, missedRemovals, bytes: () => 0 }));
        const input = await route.readOperation(operation, req, { userId, bot: botName(bot) });
        const { requestId } = res.locals;
        const { signal } = stop;
        const about = { shape, bot, userId, holders, headers: req.headers, requestId, signal };
        await route.checkSandbox(input, about);
        // A client that has gone or signed out must not drop messages. The waits below check the signal themselves.
        signal.throwIfAborted();
        const hasDropped = operation === SUSPEND && (await dropUnsent(route, res, { bot, ...input }));
        const form = operationForm(route.spool, input, { operation, req, holders, signal });
        releases.push(() => route.observer.transferred('up', form.fileBytes()), form.close);
        // To read a form to disk can take minutes.
        if (await form.arrive()) await route.checkSandbox(input, about);
        const endpoint = endpointOf(operation, botName(bot));
        const slots = route.paceMessage({ endpoint, holders, signal, log: res.locals });
        setHeaders(res, await slots.start());
        const accepted = { operation, shape, bot, userId, input };
        const sending = { req, res, accepted, slots, upload: form.begin(), signal };
        const answer = await sendOperationUntilTaken(route, sending);
        await conclude(route, hasDropped && answer.status === 404 ? DROPPED : answer, sending);
      } finally {
        for (const release of releases.reverse()) release();
      }
    };
}

/** The answer if the service had nothing to stop, but messages were dropped. */
const DROPPED: OperationAnswer = {
  status: 200,
  headers: { 'Content-Type': 'application/json' },
  body: Buffer.from('{}'),
};

/** Drops the messages of the conversation that have not left yet. Resolves with whether there was one. */
async function dropUnsent(
  { unsent }: OperationRoute,
  { locals }: Response,
  { bot, conversation }: Pick<SentOperation, 'bot'> & Pick<OperationInput, 'conversation'>,
): Promise<boolean> {
  const channel = conversation()?.upstream;
  if (channel === undefined) return false;
  const count = await unsent.stop({ bot: botName(bot), channel });
  if (count > 0) locals.stoppedMessages = count;
  return count > 0;
}

/** Keeps what the service's answer says, and passes the answer on. */
async function conclude(route: OperationRoute, answer: OperationAnswer, sending: Sending): Promise<void> {
  const { operation, bot, input } = sending.accepted;
  try {
    if (operation.channel === 'form') await rememberFiles(route, sending.accepted, answer);
    if (operation.forgets && answer.status < 300) await forgetConversation(route, bot, input.conversation());
    await answerWith(route, answer, sending);
  } catch (error) {
    throw asOperationLost(operation, error);
  }
}

/** Lets messages of this conversation name the files that the service has taken. */
async function rememberFiles(
  route: OperationRoute,
  accepted: SentOperation,
  answer: OperationAnswer,
): Promise<void> {
  const { bot, userId, input } = accepted;
  const { body } = answer;
  await route.blobs.remember(body, { bot: botName(bot), userId, conversation: input.conversation() });
}

/** What was said in the conversation, and what it had launched, is gone. */
async function forgetConversation(
  route: OperationRoute,
  bot: Bot,
  conversation: Conversation | undefined,
): Promise<void> {
  route.forgetSandboxes(bot, conversation);
  await route.forgetRuns(bot, conversation);
}

/** Answers with nothing of the service's answer except what the verdict holds. */
async function answerWith(
  route: OperationRoute,
  answer: OperationAnswer,
  { res, signal }: { readonly res: Response; readonly signal: AbortSignal },
): Promise<void> {
  const { status, headers, body, file } = answer;
  res.statusCode = status;
  setHeaders(res, headers);
  if (file) {
    const stream: CarriedStream = { bytes: 0 };
    res.locals.stream = stream;
    const options = { res, signal, stream, log: res.locals, times: route.fileTimes };
    return pipeFile(file, options).finally(() => route.observer.transferred('down', stream.bytes));
  }
  await sendBody(body, { res, signal, log: res.locals, times: ANSWER_TIMES });
}
