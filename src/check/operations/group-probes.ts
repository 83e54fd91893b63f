import { chat } from './chat.ts';
import { files } from './files.ts';
import type { GroupProbes } from './group-probe.ts';
import { metadata } from './metadata.ts';
import { sandbox } from './sandbox.ts';

/** How each group of operations is proved, in the order in which it is done. */
export const GROUP_PROBES: GroupProbes = {
  message: {
    // A body that is no JSON is refused before it could run.
    ask: ({ call }) =>
      call('POST message/sse', { body: { type: 'text/plain', bytes: Buffer.from('no message') } }),
  },
  chat,
  files,
  metadata,
  sandbox,
};
