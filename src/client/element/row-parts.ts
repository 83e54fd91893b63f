import type { Channel } from '../channel/channel-types.ts';
import type { ChatTools } from './chat-tools.ts';

/** What a row of the conversation needs. */
export interface RowParts {
  readonly tools: ChatTools;
  readonly channel: Channel;
  /** The name of the bot, as it is shown. */
  readonly botName: string;
  /** A message was sent again, or a consent given: its button is gone, so the focus needs another place. */
  readonly onSent: () => void;
}
