import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import {
  targetPrefix,
  type UpstreamTarget,
  upstreamTarget,
  userHintHeader,
} from '../upstream/upstream-target.ts';
import type { Operation } from './operation-table.ts';
import type { UploadBody } from './upload-body.ts';

/** The checked parts of a client's request that go upstream. */
export interface AcceptedOperation extends Omit<UpstreamTarget, 'path'> {
  readonly operation: Operation;
  /** JSON, which goes upstream unchanged; undefined if the operation takes no body. */
  readonly body: Buffer | undefined;
  /** A form, if the operation takes a file. */
  readonly upload?: Pick<UploadBody, 'contentType' | 'stream'> | undefined;
  /** As the client sent them. */
  readonly headers: IncomingHttpHeaders;
  readonly requestId: string;
  readonly userId: string;
}

/** A request to the bot service, without key. Its method is that of the client's request. */
export interface OperationRequest {
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Buffer | undefined;
  /** A body that can be sent once. It goes in chunks. */
  readonly stream?: Readable | undefined;
}

export interface OperationRequestOptions {
  readonly baseUrl: Readonly<URL>;
  /** The header that carries the session's user id, if any. */
  readonly userHeader: string | undefined;
}

/**
 * Makes the function that builds the upstream request of an operation. Path and headers are built from checked parts,
 * so that nothing else can be sent (RFC 9110 §7.6.1 names the hop-by-hop fields).
 */
export function operationRequestBuilder({ baseUrl, userHeader }: OperationRequestOptions) {
  const prefix = targetPrefix(baseUrl);
  return function operationRequest(accepted: AcceptedOperation): OperationRequest {
    const { operation, headers, requestId, userId, body, upload } = accepted;
    const { traceparent } = headers;
    const range = operation.givesFile ? rangeOf(headers) : undefined;
    return {
      path: upstreamTarget(prefix, { ...accepted, path: operation.path }),
      body,
      stream: upload?.stream,
      headers: {
        ...(upload && { 'content-type': upload.contentType }),
        ...(range !== undefined && { range }),
        ...(body && { 'content-type': 'application/json', 'content-length': String(body.length) }),
        accept: operation.givesFile ? '*/*' : 'application/json',
        'accept-encoding': 'identity',
        'x-request-id': requestId,
        ...(typeof traceparent === 'string' && { traceparent }),
        ...userHintHeader(userHeader, userId),
      },
    };
  };
}

/**
 * One range of bytes (RFC 9110 §14.1.2). Several ranges are not passed on, nor one with `If-Range`, since the client has
 * got no validator: then it gets the whole file.
 */
function rangeOf({ range, 'if-range': condition }: IncomingHttpHeaders): string | undefined {
  return condition === undefined &&
    range !== undefined &&
    /^bytes=(?:\d{1,15}-\d{0,15}|-\d{1,15})$/.test(range)
    ? range
    : undefined;
}
