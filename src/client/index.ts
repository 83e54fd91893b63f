/**
 * The client of the relay, for browsers and Node.js.
 * @module bot-relay-client
 */

export { textOf } from './channel/channel-state.ts';
export type {
  Channel,
  ChannelKey,
  ChannelMessage,
  ChannelOptions,
  ChannelSnapshot,
  DataPart,
  FilePart,
  MessageMetadata,
  MessagePart,
  MessageStorage,
  NewMessage,
  TextPart,
  ToolPart,
  UploadOptions,
  Verdict,
} from './channel/channel-types.ts';
export { createChannel } from './channel/create-channel.ts';
export * from './session/bot-client.ts';
