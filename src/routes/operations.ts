import type { ServerResponse } from 'node:http';
import type { Request, Response } from 'express';
import { botName, type PathShape } from '../bots/bot.ts';
import { checkFileUse } from '../guard/fetch-metadata.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-connection.ts';
import type { CarriedStream } from '../http/locals.ts';
import { holdersApart } from '../pace/holders.ts';
import type { OperationAnswer } from '../relay/operations/judge-operation.ts';
import { endpointOf, type Operation, SUSPEND } from '../relay/operations/operation-table.ts';
import { pipeFile, sendBody } from '../relay/operations/send-answer.ts';
import { asOperationLost } from '../relay/operations/send-operation.ts';
import { conversationKey } from '../runs/run-name.ts';
import type { BotServices } from './bot-services.ts';
import { findBot, findSession } from './bot-steps.ts';
import type { OperationInput } from './operation-input.ts';
import {
  type CheckedOperation,
  type OperationWithSlot,
  sendOperationUntilTaken,
} from './operation-sending.ts';
import { type Releases, releaseAll, type Steps } from './route.ts';

/** How long a client may take to read an answer other than a file, in ms: it is in memory, and keeps its place. */
const ANSWER_TIMES = { stallMs: 30_000, wholeMs: 120_000 };

/** An ordinary operation of the bot service, one request and one short answer: its steps from top to bottom. */
export function operationRoute(services: BotServices): (operation: Operation, shape: PathShape) => Steps {
  return (operation, shape) =>
    async function operate(req: Request, res: Response): Promise<void> {
      const stop = abortWhenLeft(res);
      const releases: Releases = [];
      try {
        const missedRemovals = services.watch.missedRemovals();
        const session = await findSession(services, { req, res, stop, releases, kind: 'operation' });
        const userId = session.user.id;
        await services.sessions.confirm(session);
        const bot = findBot(services, { req, res, group: operation.group });
        if (operation.givesFile) checkFileUse(req.headers);
        const holders = services.holdersOf(userId, () => clientAddress(req));
        // A suspend has places of its own: it must work while others hang.
        const kind = operation === SUSPEND ? 'suspend' : 'operation';
        releases.push(await services.takeOperationPlace(holdersApart(kind, holders)));
        releases.push(services.watch.add({ session, missedRemovals, bytes: () => 0 }));
        const { count, release } = services.countBody(holders);
        releases.push(release);
        const input = await services.readOperation(operation, req, { userId, count });
        const { requestId } = res.locals;
        const { signal } = stop;
        const about = { shape, bot, userId, holders, headers: req.headers, requestId, signal };
        await services.checkSandbox(input, about);
        // A suspend whose client has left or signed out must not stop messages. All waits below check the signal.
        signal.throwIfAborted();
        const hasStopped = operation === SUSPEND && (await stopWaiting(services, res, { bot, ...input }));
        const endpoint = endpointOf(operation, botName(bot));
        const pacing = services.paceMessage({ endpoint, holders, signal, log: res.locals });
        setHeaders(res, await pacing.start());
        const checked = { operation, shape, bot, userId, input };
        const upload = input.openUpload?.();
        if (upload)
          releases.push(() => services.observer.transferred('up', upload.fileBytes()), upload.close);
        const sending = { req, res, checked, pacing, upload, signal };
        const answer = await sendOperationUntilTaken(services, sending);
        await conclude(services, hasStopped && answer.status === 404 ? STOPPED : answer, sending);
      } finally {
        releaseAll(releases);
      }
    };
}

/** The answer if the service had nothing to stop, but messages that waited were. */
const STOPPED: OperationAnswer = {
  status: 200,
  headers: { 'Content-Type': 'application/json' },
  body: Buffer.from('{}'),
};

/** Stops the messages of the conversation that have not left yet. Resolves with whether there was one. */
async function stopWaiting(
  { runs }: BotServices,
  { locals }: Response,
  { bot, conversation }: Pick<CheckedOperation, 'bot'> & Pick<OperationInput, 'conversation'>,
): Promise<boolean> {
  const channel = conversation()?.upstream;
  if (channel === undefined) return false;
  const count = await runs.stop(conversationKey({ bot: botName(bot), channel }));
  if (count > 0) locals.stoppedMessages = count;
  return count > 0;
}

/** Remembers or forgets what the answer has changed, and passes it on. */
async function conclude(
  services: BotServices,
  answer: OperationAnswer,
  sending: OperationWithSlot,
): Promise<void> {
  const { operation, bot, userId, input } = sending.checked;
  const conversation = input.conversation();
  try {
    // Messages of this conversation may name the file from now on.
    if (operation.channel === 'form')
      await services.blobs.remember(answer.body, { bot: botName(bot), userId, conversation });
    if (operation.forgets && answer.status < 300) {
      services.forgetSandboxes(bot, conversation);
      await services.forgetRuns(bot, conversation);
    }
    await answerWith(services, answer, sending);
  } catch (error) {
    throw asOperationLost(operation, error);
  }
}

/** Writes the answer to the client. */
async function answerWith(
  services: BotServices,
  answer: OperationAnswer,
  { res, signal }: { readonly res: Response; readonly signal: AbortSignal },
): Promise<void> {
  const { status, headers, body, file } = answer;
  res.statusCode = status;
  setHeaders(res, headers);
  if (file) {
    const stream: CarriedStream = { bytes: 0 };
    res.locals.stream = stream;
    const options = { res, signal, stream, log: res.locals, times: services.fileTimes };
    return pipeFile(file, options).finally(() => services.observer.transferred('down', stream.bytes));
  }
  await sendBody(body, { res, signal, log: res.locals, times: ANSWER_TIMES });
}

/** Sets all `headers` of an answer. */
function setHeaders(res: ServerResponse, headers: Readonly<Record<string, string>>): void {
  for (const name in headers) res.setHeader(name, headers[name] as string);
}
