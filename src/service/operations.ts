import { sandboxOperations } from './sandbox/sandbox-operations.ts';
import type { Sandboxes } from './sandbox/sandboxes.ts';
import { sendData } from './wire/answers.ts';
import { channelHistory } from './wire/channel-history.ts';
import {
  channelMetadata,
  clearChannel,
  deleteChannel,
  messageFeedback,
  suspendRuns,
} from './wire/channel-operations.ts';
import { downloadFile, uploadBlob } from './wire/file-operations.ts';
import { sendMessage } from './wire/send-message.ts';
import type { Operation, ServiceCall } from './wire/service-call.ts';

/** The operations of the service, by method and path below a bot's path. */
export type Operations = Readonly<Record<string, Operation>>;

/** Makes the operations. `sandboxes` are those of the bots that have them. */
export const operationsOf = (sandboxes: Sandboxes): Operations => ({
  'POST message/sse': sendMessage,
  'GET message/sse': channelHistory,
  'POST message/suspend': suspendRuns,
  'POST message/feedback': messageFeedback,
  'GET channel/metadata': (call) => channelMetadata(call, call.brain.hasSandbox ? [sandboxes.described] : []),
  'DELETE channel': deleteChannel,
  'POST channel/clear': clearChannel,
  'POST blob': uploadBlob,
  'GET channel-home/download': downloadFile,
  'GET cwd/download': downloadFile,
  'GET metadata': botMetadata,
  ...sandboxOperations(sandboxes),
});

/** `GET metadata`: the bot's configuration. */
async function botMetadata({ res, brain, namespace, botProviderName }: ServiceCall): Promise<void> {
  sendData(res, {
    namespace,
    botProviderName,
    providerType: 'generic',
    annotations: brain.metadata,
  });
}
