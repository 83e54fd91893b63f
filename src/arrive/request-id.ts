import { randomUUID } from 'node:crypto';
import type { RequestHandler } from 'express';

const WELL_FORMED = /^[A-Za-z0-9._-]{8,128}$/;

/** The caller's `X-Request-Id` if it consists of 8 to 128 letters, digits, `.`, `_` or `-`; else a new UUID. */
export function requestIdFrom(header: string | string[] | undefined): string {
  return typeof header === 'string' && WELL_FORMED.test(header) ? header : randomUUID();
}

/** Gives every request an id, in `res.locals.requestId` and as `X-Request-Id` on the answer. */
export function requestId(): RequestHandler {
  return function requestId(req, res, next) {
    const id = requestIdFrom(req.headers['x-request-id']);
    res.locals.requestId = id;
    res.setHeader('X-Request-Id', id);
    next();
  };
}
