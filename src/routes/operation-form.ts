import type { Request } from 'express';
import { type Holders, namesOf } from '../pace/holders.ts';
import type { Operation } from '../relay/operations/operation-table.ts';
import type { SpoolUpload } from '../relay/operations/spool-upload.ts';
import { formOnTheWay, type UploadForm } from '../relay/operations/upload-form.ts';
import type { OperationInput } from './operation-input.ts';

/** The form of a request, if it has one: as it arrives, or from disk, where it has been read to. */
export interface OperationForm {
  /**
   * Reads the form to disk, if that is configured, and resolves with whether it has. Do this before the slot, which would
   * get old meanwhile.
   */
  arrive(): Promise<boolean>;
  /** Begins to read the form, unless it has arrived; undefined if there is none. */
  begin(): UploadForm | undefined;
  /** How many bytes of its file have been carried. */
  fileBytes(): number;
  /** Forgets the form. */
  close(): void;
}

/** What a form is part of. */
export interface FormRequest {
  readonly operation: Operation;
  readonly req: Request;
  readonly holders: Holders;
  readonly signal: AbortSignal;
}

/** @throws as `SpoolUpload`, from `arrive` */
export function operationForm(
  spool: SpoolUpload | undefined,
  { openUpload, conversation }: OperationInput,
  { operation, req, holders, signal }: FormRequest,
): OperationForm {
  let form: UploadForm | undefined;
  return {
    async arrive() {
      if (!spool || !openUpload) return false;
      const declared = req.headers['content-length'];
      const id = () => (operation.channel === 'form' ? conversation()?.upstream : undefined);
      form = await spool({ openUpload, declared, holders: namesOf(holders), id, signal });
      return true;
    },
    begin() {
      form ??= openUpload && formOnTheWay(openUpload());
      return form;
    },
    fileBytes: () => form?.fileBytes() ?? 0,
    close: () => form?.close(),
  };
}
