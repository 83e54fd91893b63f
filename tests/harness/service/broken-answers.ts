import type { Socket } from 'node:net';
import { chunk, plainAnswer, type RawRequest, STREAM_HEAD, wholeStream } from './raw-upstream.ts';

/** An event of a run, in the form of the field. */
export const runEvent = (eventType: string, requestId = 'r') =>
  `data: ${JSON.stringify({ eventType, requestId })}\n\n`;
export const INIT = runEvent('asgard.run.init');
export const DONE = runEvent('asgard.run.done');
/** It has an id, from which the stream can be resumed. */
export const KEPT = `id: 7\n${runEvent('kept')}`;
export const DELTA = runEvent('delta');
export const ANOTHER_INIT = runEvent('asgard.run.init', 'another');
/** Pauses of healing are short. */
export const SOON = 'retry: 1\n\n';

/** What a service does with a request. */
export type Reply = (socket: Socket, request: RawRequest) => void;

/** A stream that breaks after `text`: a FIN in the middle of a chunk, before which all bytes arrive. */
export const breaks =
  (text: string): Reply =>
  (socket) =>
    void socket.end(`${STREAM_HEAD}fffff\r\n${text}`);
/** A stream that stays open after `text`. */
export const opens =
  (text: string): Reply =>
  (socket) =>
    void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]));
/** A stream that ends after `text`. */
export const whole =
  (text: string): Reply =>
  (socket) =>
    void socket.write(wholeStream(text));
/** An answer without a body. */
export const answers =
  (statusLine: string, ...headers: string[]): Reply =>
  (socket) =>
    void socket.write(plainAnswer(statusLine, headers));
/** No answer. */
export const silent: Reply = () => {};
