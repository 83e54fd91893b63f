import { launchedSandboxes } from '../../guard/sandboxes.ts';
import { isPlainPath } from '../../http/plain-path.ts';
import { describe, jsonOf, verdictOn } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';
import { reporterOf } from './report-operation.ts';

/** A sandbox that a conversation has launched. */
export interface LaunchedSandbox {
  readonly sandbox: string;
  /** A folder in it. */
  readonly folder: string;
}

const METADATA = 'GET channel/metadata';
/** Where the file is written if the bot service names no folder. */
const ANY_FOLDER = '/tmp';
/** How deep the list of sandboxes stands in the metadata, with its entries. */
const DEPTH = 3;

/** The first sandbox that the conversation of the check has launched, by its metadata. Without one, a note says why. */
export async function launchedSandbox(session: OperationSession): Promise<LaunchedSandbox | undefined> {
  const { note } = reporterOf(session, 'sandbox');
  const { conversation, call, quote } = session;
  if (!conversation.isBegun) {
    note('not proved, since no message was answered', 'Check without --no-messages.');
    return undefined;
  }
  const answer = await call(METADATA, { conversation: conversation.id });
  const verdict = verdictOn(answer);
  if (verdict === 'off') {
    const says = 'not proved: the group chat is off, so that no page can see which sandboxes there are';
    note(says, 'Take chat into OPERATIONS.');
    return undefined;
  }
  if (verdict !== 'done') {
    note(`not proved: the metadata of the conversation was answered with ${quote(describe(answer))}`);
    return undefined;
  }
  const json = jsonOf(answer);
  const [sandbox] = launchedSandboxes(json);
  if (sandbox !== undefined) return { sandbox, folder: folderOf(json, sandbox) ?? ANY_FOLDER };
  const advice = 'Give a --text with which the bot uses its sandbox, or a bot that does so with --bot.';
  note('not proved: the conversation of this check has launched no sandbox', advice);
  return undefined;
}

/** The working directory of the entry that names `sandbox`, if the relay takes it as a path. */
function folderOf(json: unknown, sandbox: string, depth = 0): string | undefined {
  if (typeof json !== 'object' || json === null || depth > DEPTH) return undefined;
  const { sandboxName, workingDirectory: folder } = json as Partial<Record<string, unknown>>;
  if (sandboxName === sandbox && typeof folder === 'string' && folder.startsWith('/') && isPlainPath(folder))
    return folder;
  for (const inner of Object.values(json)) {
    const found = folderOf(inner, sandbox, depth + 1);
    if (found !== undefined) return found;
  }
  return undefined;
}
