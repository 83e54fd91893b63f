import { botMetadata } from './bot-metadata.ts';
import { channelHistory } from './channel-history.ts';
import {
  channelMetadata,
  clearChannel,
  deleteChannel,
  messageFeedback,
  suspendRuns,
} from './channel-operations.ts';
import { downloadFile, uploadBlob } from './file-operations.ts';
import { SANDBOX_OPERATIONS } from './sandbox-operations.ts';
import { sendMessage } from './send-message.ts';
import type { Operation } from './service-call.ts';

/** The operations of the service, by method and path below a bot's path. */
export const OPERATIONS: Readonly<Record<string, Operation>> = {
  'POST message/sse': sendMessage,
  'GET message/sse': channelHistory,
  'POST message/suspend': suspendRuns,
  'POST message/feedback': messageFeedback,
  'GET channel/metadata': channelMetadata,
  'DELETE channel': deleteChannel,
  'POST channel/clear': clearChannel,
  'POST blob': uploadBlob,
  'GET channel-home/download': downloadFile,
  'GET cwd/download': downloadFile,
  'GET metadata': botMetadata,
  ...SANDBOX_OPERATIONS,
};
