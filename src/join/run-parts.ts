import { randomUUID } from 'node:crypto';

/** In a cluster, the runs of all conversations are in so many parts, so that each master has some. */
const PARTS = 16;

/** Where runs are in Redis. Scripts make their keys from the key of a part, which has its hash tag. */
export interface RunParts {
  /** One key for each part. */
  readonly keys: readonly string[];
  /** The key of the part that has the names and runs of a conversation. */
  ofConversation(conversation: string): string;
  /** A new id for a run of this conversation. It tells the part. */
  newId(conversation: string): string;
  /** The key of the part that has a run. */
  ofRun(id: string): string;
}

const keyOf = (part: string) => `bot-relay:{runs${part}}:names`;
const ONLY = keyOf('');

/** One part on a single server, whose keys are those of the versions before; several in a cluster. */
export function runParts(isCluster: boolean): RunParts {
  if (!isCluster)
    return { keys: [ONLY], ofConversation: () => ONLY, newId: () => randomUUID(), ofRun: () => ONLY };
  return {
    keys: Array.from({ length: PARTS }, (_, n) => keyOf(`:${n.toString(PARTS)}`)),
    ofConversation: (conversation) => keyOf(partOf(conversation)),
    newId: (conversation) => randomUUID() + partOf(conversation),
    ofRun: (id) => keyOf(id.slice(id.indexOf(':'))),
  };
}

/** By a digit of the hash that names the conversation. */
function partOf(conversation: string): string {
  const [byte = 0] = Buffer.from(conversation.slice(0, 2), 'base64url');
  return `:${(byte % PARTS).toString(PARTS)}`;
}
