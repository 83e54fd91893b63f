import type { ChannelMessage } from './channel-types.ts';

/**
 * The text of a message; its texts are paragraphs.
 * @param message A message of a channel.
 */
export function textOf({ parts }: Pick<ChannelMessage, 'parts'>): string {
  return parts.flatMap((part) => (part.type === 'text' && part.text !== '' ? [part.text] : [])).join('\n\n');
}
