import { randomUUID } from 'node:crypto';
import { Refusal, sendData, sendNothing } from './answers.ts';
import { readJsonObject } from './read-body.ts';
import { channelId, channelOf, type ServiceCall } from './service-call.ts';

/** `GET channel/metadata`. `launchedSandboxes` describes those of the channel. */
export async function channelMetadata(
  call: ServiceCall,
  launchedSandboxes: readonly object[],
): Promise<void> {
  const channel = channelOf(call);
  const { title = null, lastActivityAt } = channel.state();
  const runState = channel.live.all().length > 0 ? 'RUNNING' : 'IDLE';
  sendData(call.res, { customChannelId: channel.id, title, runState, lastActivityAt, launchedSandboxes });
}

/** `DELETE channel`: ends the runs of a channel and forgets it. */
export async function deleteChannel(call: ServiceCall): Promise<void> {
  const { id } = channelOf(call);
  call.service.channels.delete(call, id);
  sendNothing(call.res);
}

/** `POST channel/clear`: ends the runs of a channel and forgets what was said. The channel stays. */
export async function clearChannel(call: ServiceCall): Promise<void> {
  const { id } = channelOf(call);
  const { channels } = call.service;
  channels.transaction(() => channels.clear(call, id));
  sendNothing(call.res);
}

/** `POST message/suspend`: stops the runs of a channel, or one. The end of each is sent on its own stream. */
export async function suspendRuns(call: ServiceCall): Promise<void> {
  const { res, service, query } = call;
  const channel = service.channels.find(call, channelId(query.get('custom_channel_id')));
  if (!channel?.live.suspend(query.get('request_id') ?? undefined)) throw new Refusal('NO_RUN');
  sendData(res, { suspended: true });
}

const VERDICTS: readonly unknown[] = ['GOOD', 'BAD'];
const MAX_COMMENT_BYTES = 8192;

/** `POST message/feedback`: keeps what the user thinks of one message of the bot. The newest counts. */
export async function messageFeedback(call: ServiceCall): Promise<void> {
  const { req, res, service, namespace, botProviderName } = call;
  const feedback = await readJsonObject(req);
  if (!feedback) throw new Refusal('INVALID_FEEDBACK');
  const { customChannelId, messageId, verdict, comment = '' } = feedback;
  const channel = service.channels.find(call, channelId(customChannelId));
  if (!channel) throw new Refusal('CHANNEL_NOT_FOUND');
  if (!VERDICTS.includes(verdict) || typeof comment !== 'string') throw new Refusal('INVALID_FEEDBACK');
  if (Buffer.byteLength(comment) > MAX_COMMENT_BYTES) throw new Refusal('INVALID_FEEDBACK');
  const rated = channel.kept.all().find((one) => one.messageId !== null && one.messageId === messageId);
  if (!rated) throw new Refusal('MESSAGE_NOT_FOUND');
  const own = randomUUID();
  const event = {
    eventType: 'asgard.message.feedback',
    source: { requestId: rated.runId, namespace, botProviderName, customChannelId: channel.id },
    fact: { messageFeedback: { messageId: own, targetMessageId: messageId, verdict, comment } },
  } as const;
  const kept = channel.transaction(() => channel.kept.add(event));
  sendData(res, { messageId: own, seq: kept?.sequence });
}
