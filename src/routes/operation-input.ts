import type { Request } from 'express';
import type { Conversation, Conversations } from '../guard/conversations.ts';
import { sandboxName } from '../guard/sandboxes.ts';
import { type BodyOptions, refuseBody } from '../http/body.ts';
import { readJson } from '../http/read-json.ts';
import { readQuery } from '../http/read-query.ts';
import type { Operation } from '../relay/operations/operation-table.ts';
import {
  type UploadBody,
  type UploadOptions,
  uploadBody,
  uploadBoundary,
} from '../relay/operations/upload-body.ts';
import { SANDBOX } from '../relay/upstream/upstream-target.ts';

/** What a client has sent to an operation, with the upstream id of its conversation in place. */
export interface OperationInput {
  /** Undefined if the operation has none, or until its form has named it. */
  readonly conversation: () => Conversation | undefined;
  readonly query: URLSearchParams;
  /** The sandbox that the path names; undefined if the operation has none. */
  readonly sandbox: string | undefined;
  /** JSON; undefined if the operation takes no body. */
  readonly body: Buffer | undefined;
  /** Begins to read the form; undefined if the operation takes no file. */
  readonly openUpload?: () => UploadBody;
}

/**
 * Reads path, query and body of a request, as far as the operation takes them; of a form, the headers.
 * @throws Problem of `Conversations`, `bad_request`, `invalid_query`, `body_too_large`, and those of `readJson` and
 *   `uploadBoundary`; `CLIENT_LEFT`
 */
export type ReadOperation = (
  operation: Operation,
  req: Request,
  from: { readonly userId: string } & Pick<BodyOptions, 'count'>,
) => Promise<OperationInput>;

export interface ReadOperationOptions {
  readonly conversations: Pick<Conversations, 'ofJson' | 'ofQuery' | 'ofForm'>;
  /** How long a body may take to arrive, in ms. */
  readonly bodyTimeoutMs: number;
  /** How large a file may be, and how long it may take. */
  readonly uploads: Pick<UploadOptions, 'maxBytes' | 'times'>;
}

/** Makes the reader of requests for operations. */
export function operationReader(options: ReadOperationOptions): ReadOperation {
  const { conversations, bodyTimeoutMs, uploads } = options;

  function openerOf(req: Request, upstreamId: UploadOptions['upstreamId']): () => UploadBody {
    const boundary = uploadBoundary(req.headers, uploads.maxBytes);
    return () => uploadBody(req, { ...uploads, boundary, upstreamId });
  }

  /** The form of a user, which names its conversation; the query may have the same id. */
  function readForm(req: Request, userId: string): Pick<OperationInput, 'conversation' | 'openUpload'> {
    // The proxy changes `req.url` while the form arrives.
    const { url } = req;
    let found: Conversation | undefined;
    const openUpload = openerOf(req, (name, value) => {
      found = conversations.ofForm({ name, value }, { url, userId });
      return found.upstream;
    });
    return { conversation: () => found, openUpload };
  }

  return async function readOperation(operation, req, { userId, count }) {
    const { channel, path, query: parameters = {}, maxBodyBytes = 0, takesFile = false } = operation;
    const { url, headers } = req;
    const sandbox = path.includes(SANDBOX) ? sandboxName(req.params[SANDBOX.slice(1)]) : undefined;
    const readOwn = () => ({ query: readQuery(url, parameters), sandbox, body: undefined });
    if (channel === 'json') {
      const { bytes } = await readJson(req, { maxBytes: maxBodyBytes, timeoutMs: bodyTimeoutMs, count });
      const { body, conversation } = conversations.ofJson(bytes, { url, userId });
      return { ...readOwn(), conversation: () => conversation, body };
    }
    if (channel === 'form') return { ...readOwn(), ...readForm(req, userId) };
    if (!takesFile) refuseBody(headers);
    if (channel === 'none') return { ...readOwn(), conversation: () => undefined };
    const conversation = conversations.ofQuery({ url, userId });
    const own = readOwn();
    const withChannelId = { custom_channel_id: conversation.upstream, ...Object.fromEntries(own.query) };
    return {
      ...{ ...own, query: new URLSearchParams(withChannelId), conversation: () => conversation },
      // The conversation stands in the query, so that the form has nothing but the file.
      ...(takesFile && { openUpload: openerOf(req, undefined) }),
    };
  };
}
