import type { Channel } from './channel.ts';
import type { ReadMessage } from './read-message.ts';
import { Refusal } from './refusal.ts';

/**
 * Takes the user's answer to the tool call that waits in the channel; returns whether it may be made.
 * @throws Refusal `NO_CONSENT_PENDING` if no call waits, or if another one is answered
 */
export function takeConsent(
  channel: Channel | undefined,
  { toolCallConsents }: Pick<ReadMessage, 'toolCallConsents'>,
): boolean {
  const pending = channel?.pendingConsent?.pendingCalls ?? [];
  const results = pending.map(
    ({ toolCallId }) => toolCallConsents.find((one) => one.toolCallId === toolCallId)?.result,
  );
  if (!channel || results.length === 0 || results.includes(undefined))
    throw new Refusal('NO_CONSENT_PENDING');
  channel.allowsTools ||= results.includes('ALLOW_ALWAYS');
  return !results.includes('DENY_ONCE');
}
