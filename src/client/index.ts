export * from './bot-client.ts';
export type {
  Channel,
  ChannelKey,
  ChannelMessage,
  ChannelOptions,
  ChannelSnapshot,
  ChannelStorage,
  DataPart,
  FilePart,
  MessageMetadata,
  MessagePart,
  NewMessage,
  TextPart,
  ToolPart,
  UploadOptions,
  Verdict,
} from './channel-types.ts';
export { createChannel } from './create-channel.ts';
export { textOf } from './text-of.ts';
