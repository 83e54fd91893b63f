import type { Request, Response } from 'express';
import { type Bot, botName, type PathShape } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import type { Pacing } from '../pace/pacing.ts';
import type { OperationAnswer } from '../relay/operations/judge-operation.ts';
import type { Operation } from '../relay/operations/operation-table.ts';
import { asOperationLost } from '../relay/operations/send-operation.ts';
import type { UploadBody } from '../relay/operations/upload-body.ts';
import type { BotServices } from './bot-services.ts';
import type { OperationInput } from './operation-input.ts';
import { requestKeys } from './request-keys.ts';

/** An operation that has passed all checks. */
export interface CheckedOperation {
  readonly operation: Operation;
  readonly shape: PathShape;
  readonly bot: Bot;
  readonly userId: string;
  readonly input: OperationInput;
}

/** An operation that has its slot. */
export interface OperationWithSlot {
  readonly req: Request;
  readonly res: Response;
  readonly checked: CheckedOperation;
  readonly pacing: Pacing;
  readonly upload: UploadBody | undefined;
  readonly signal: AbortSignal;
}

/**
 * Sends the request with the next key until the service answers other than by refusing the key. If the service may have
 * taken it, and it must not be sent twice, the problem says `maybeStarted`.
 * @throws Problem of `SendOperation`, `upstream_key_rejected`, `upstream_refused`, and those of the slot
 */
export async function sendOperationUntilTaken(
  services: BotServices,
  sending: OperationWithSlot,
): Promise<OperationAnswer> {
  const { req, res, checked, pacing, signal, upload } = sending;
  const { requestId } = res.locals;
  const { input, ...target } = checked;
  const { conversation } = input;
  const { headers } = req;
  const { keys, mask } = requestKeys(services, { bot: botName(checked.bot), requestId, conversation });
  const onStatus = (status: number) => {
    res.locals.upstreamStatus = status;
  };
  const { operation } = checked;
  for (;;) {
    const request = services.operationRequest({ ...target, ...input, upload, headers, requestId });
    let hasLeft = false;
    const onLeaving = () => {
      // The service acts on a form only when it has all of it.
      hasLeft = !upload;
    };
    const onSent = () => {
      hasLeft = true;
      pacing.sent();
    };
    const events = { onLeaving, onSent, onStatus };
    const attempt = { operation, request, upload, key: keys.next(), mask, signal, ...events };
    const verdict = await services.sendOperation(req, res, attempt).catch((error: unknown) => {
      throw hasLeft ? asOperationLost(operation, error) : error;
    });
    if (!(verdict instanceof Problem)) {
      keys.accepted();
      return verdict;
    }
    const failure = keys.refused(verdict);
    // A form is sent as it arrives, so it cannot be sent again.
    if (failure || upload) throw failure ?? verdict;
    await pacing.takeExtraSlot();
  }
}
