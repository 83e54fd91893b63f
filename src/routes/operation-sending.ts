import type { Request, Response } from 'express';
import { type Bot, botName } from '../bots/bot.ts';
import type { PathShape } from '../bots/bot-path.ts';
import type { Logger } from '../logger.ts';
import type { Pacing } from '../pace/pacing.ts';
import type { OperationAnswer } from '../relay/operations/judge-operation.ts';
import { asOperationLost } from '../relay/operations/operation-lost.ts';
import type { AcceptedOperation, OperationRequest } from '../relay/operations/operation-request.ts';
import type { Operation } from '../relay/operations/operation-table.ts';
import type { SendOperation } from '../relay/operations/send-operation.ts';
import type { UploadForm } from '../relay/operations/upload-form.ts';
import type { KeyRings } from '../relay/upstream/key-rings.ts';
import { keysRefused } from '../relay/upstream/message-keys.ts';
import type { OperationInput } from './operation-input.ts';
import { requestKeys } from './request-keys.ts';

/** What the sending of an operation needs. */
export interface SendingParts {
  readonly operationRequest: (accepted: AcceptedOperation) => OperationRequest;
  readonly keyRings: Pick<KeyRings, 'ringOf' | 'keys'>;
  readonly send: SendOperation;
  readonly logger: Logger;
}

/** An operation that has passed all checks. */
export interface SentOperation {
  readonly operation: Operation;
  readonly shape: PathShape;
  readonly bot: Bot;
  readonly userId: string;
  readonly input: OperationInput;
}

/** An operation that has its slot. */
export interface Sending {
  readonly req: Request;
  readonly res: Response;
  readonly accepted: SentOperation;
  readonly slots: Pacing;
  readonly upload: UploadForm | undefined;
  readonly signal: AbortSignal;
}

/**
 * Sends the request with the next key until the service answers other than by refusing the key. If the service may have
 * taken it, and it must not be sent twice, the problem says `maybeStarted`.
 * @throws Problem of `SendOperation`, `upstream_key_rejected`, and those of the slot
 */
export async function sendOperationUntilTaken(
  parts: SendingParts,
  sending: Sending,
): Promise<OperationAnswer> {
  const { req, res, accepted, slots, signal, upload: form } = sending;
  const { requestId } = res.locals;
  const { input, ...target } = accepted;
  const { conversation } = input;
  const { headers } = req;
  const { keys, mask } = requestKeys(parts, { bot: botName(accepted.bot), requestId, conversation });
  const onStatus = (status: number) => {
    res.locals.upstreamStatus = status;
  };
  const { operation } = accepted;
  for (;;) {
    const upload = form?.open();
    const request = parts.operationRequest({ ...target, ...input, upload, headers, requestId });
    let hasLeft = false;
    // The service acts on a form only when it has all of it.
    const onLeaving = () => {
      hasLeft = !upload;
    };
    const onSent = () => {
      hasLeft = true;
      slots.sent();
    };
    const events = { onLeaving, onSent, onStatus };
    const attempt = { operation, request, upload, key: keys.next(), mask, signal, ...events };
    const verdict = await parts.send(req, res, attempt).catch((error: unknown) => {
      throw hasLeft ? asOperationLost(operation, error) : error;
    });
    if (verdict !== 'key_refused') {
      keys.accepted();
      return verdict;
    }
    // A 403 may be about the request, such as a message of somebody else. It must not cost others their keys.
    const isMore = res.locals.upstreamStatus === 401 ? keys.refused() : keys.maybeRefused();
    // A form that was sent as it arrived has been read, and cannot be sent again.
    if (!isMore || form?.isRepeatable === false) throw keysRefused();
    await slots.takeExtraSlot();
  }
}
