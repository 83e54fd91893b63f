import type { ArrivingUpload, UploadBody } from './upload-body.ts';

/** A form that goes to the bot service. */
export interface UploadForm {
  /** Whether it can be sent more than once. */
  readonly isRepeatable: boolean;
  /** Begins a sending; the one before is over then. */
  open(): UploadBody;
  /** How many bytes of its file have been carried. */
  fileBytes(): number;
  /** Ends a sending that is under way, and forgets the form. */
  close(): void;
}

/** A form that is sent as it arrives. */
export function formOnTheWay(body: ArrivingUpload): UploadForm {
  return { isRepeatable: false, open: () => body, fileBytes: body.fileBytes, close: body.close };
}
