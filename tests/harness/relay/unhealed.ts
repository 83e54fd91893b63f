import { heldBytes } from '../../../src/relay/message/held-bytes.ts';
import type { CarryOptions } from '../../../src/relay/message/stream-state.ts';

/** What `carryStream` needs to carry a stream that is never resumed; a fault of the relay fails the test. */
export const UNHEALED = {
  holding: { maxBytes: 65_536, held: heldBytes(1 << 20), onUnheld: () => {} },
  channel: undefined,
  lastEventId: undefined,
  healer: undefined,
  endEvents: true,
  onFault(error) {
    throw error;
  },
} satisfies Partial<CarryOptions>;
