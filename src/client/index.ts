/**
 * The client of the relay, for browsers and Node.js.
 * @module bot-relay-client
 */
export * from './bot-client.ts';
export type {
  Channel,
  ChannelKey,
  ChannelMessage,
  ChannelOptions,
  ChannelSnapshot,
  ChannelStorage,
  DataPart,
  FailedHistory,
  FilePart,
  MessageMetadata,
  MessagePart,
  NewMessage,
  TextPart,
  ToolCall,
  ToolPart,
  UploadOptions,
  Verdict,
} from './channel-types.ts';
export { createChannel } from './create-channel.ts';
export { textOf } from './text-of.ts';
