import { newConversation } from '../conversation.ts';
import { apartness } from './apartness.ts';
import type { ForeignQuestion } from './group-probe.ts';
import { requestFor, type SandboxFile } from './sandbox-file.ts';

const READ = 'GET sandbox/:sandbox/fs/file';

/**
 * A second user asks for the file, which is in the sandbox at that time: by the id of the first one's conversation, and
 * by that of a conversation of their own, which may have a sandbox of the same name.
 */
export function foreignReads(file: SandboxFile): ForeignQuestion[] {
  const asking =
    (conversation: string): ForeignQuestion['ask'] =>
    async (other) =>
      apartness(await other.call(READ, { ...requestFor(file), conversation }));
  return [
    { what: 'its file in a sandbox', ask: asking(file.conversation) },
    { what: 'this file by another conversation', ask: asking(newConversation().id) },
  ];
}
