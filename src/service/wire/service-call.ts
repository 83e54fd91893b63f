import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Brain } from '../brains/steps.ts';
import type { Channel } from '../store/channel.ts';
import type { Channels } from '../store/channels.ts';
import { Refusal } from './answers.ts';

/** The state of the service. */
export interface Service {
  readonly channels: Channels;
  readonly maxExecutionMs: number;
  /** Called with each error that is a fault of the service. */
  readonly onFault: (error: unknown) => void;
  /** Counts a message of today; returns false if the project may have no more of them. */
  readonly countMessage: (projectId: string) => boolean;
}

/** A request that has been admitted. */
export interface ServiceCall {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly service: Service;
  /** The project of the key and of the bot. */
  readonly projectId: string;
  readonly namespace: string;
  readonly botProviderName: string;
  /** `namespace/bot`. */
  readonly endpoint: string;
  readonly brain: Brain;
  readonly query: URLSearchParams;
  /** The name of the sandbox in the path; empty in other paths. */
  readonly sandbox: string;
}

/** Answers a call, or throws a `Refusal`. */
export type Operation = (call: ServiceCall) => Promise<void>;

const MAX_CHANNEL_ID = 256;

/**
 * The value as the id of a channel.
 * @throws Refusal `INVALID_CHANNEL`
 */
export function channelId(value: unknown): string {
  const isId = typeof value === 'string' && value !== '' && value.length <= MAX_CHANNEL_ID;
  if (isId && value.isWellFormed()) return value;
  throw new Refusal('INVALID_CHANNEL');
}

/**
 * The channel that the query names.
 * @throws Refusal `INVALID_CHANNEL`, or `CHANNEL_NOT_FOUND` if there is no such channel yet
 */
export function channelOf(call: ServiceCall): Channel {
  const channel = call.service.channels.find(call, channelId(call.query.get('custom_channel_id')));
  if (!channel) throw new Refusal('CHANNEL_NOT_FOUND');
  return channel;
}
