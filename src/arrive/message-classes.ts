import { IncomingMessage, type ServerOptions, ServerResponse } from 'node:http';
import type { Express, Request, Response } from 'express';
import { newLocals } from '../http/locals.ts';

/**
 * Makes the classes of the requests and answers of a server that serves `app` alone. They have the application's methods
 * from the start: Express would change the prototype of each request and each answer, and keep its locals in an object
 * without a shape, which slows down all that is done with them.
 */
export function messageClasses(app: Express): Pick<ServerOptions, 'IncomingMessage' | 'ServerResponse'> {
  class AppRequest extends IncomingMessage {}
  class AppResponse<One extends IncomingMessage> extends ServerResponse<One> {
    readonly locals = newLocals();
  }
  Object.setPrototypeOf(AppRequest.prototype, app.request);
  Object.setPrototypeOf(AppResponse.prototype, app.response);
  app.request = AppRequest.prototype as Request;
  app.response = AppResponse.prototype as Response;
  return { IncomingMessage: AppRequest, ServerResponse: AppResponse };
}
