import type { Conversation } from '../guard/conversations.ts';
import type { Logger } from '../logger.ts';
import { withClientId } from '../relay/upstream/channel-names.ts';
import type { KeyRings } from '../relay/upstream/key-rings.ts';
import { type MessageKeys, messageKeys } from '../relay/upstream/message-keys.ts';
import { maskKeys } from '../relay/upstream/upstream-request.ts';

/** The keys for one request to the bot service. */
export interface RequestKeys {
  /** Those that the request may still try. */
  readonly keys: MessageKeys;
  /**
   * Masks keys in a text of the service, and puts the client's id of the conversation in the place of the upstream id.
   */
  readonly mask: (text: string) => string;
}

export interface RequestKeysOptions {
  /** `namespace/bot`. */
  readonly bot: string;
  readonly requestId: string;
  /** The conversation of the request, as far as it is known. */
  readonly conversation: () => Conversation | undefined;
}

/**
 * Gets the keys of the bot. The request keeps them until it is answered, even if the configuration is reloaded
 * meanwhile.
 */
export function requestKeys(
  { keyRings, logger }: { readonly keyRings: Pick<KeyRings, 'ringOf' | 'keys'>; readonly logger: Logger },
  { bot, requestId, conversation }: RequestKeysOptions,
): RequestKeys {
  const ring = keyRings.ringOf(bot);
  const allKeys = keyRings.keys();
  let made: RequestKeys['mask'] | undefined;
  // Made when it is needed: an ordinary stream has no text to mask.
  const mask = (text: string) => {
    made ??= withClientId(conversation, maskKeys([...ring.keys, ...allKeys]));
    return made(text);
  };
  return { keys: messageKeys(ring, logger, requestId), mask };
}
