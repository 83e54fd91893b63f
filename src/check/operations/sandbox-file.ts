import { randomUUID } from 'node:crypto';
import type { LaunchedSandbox } from './launched-sandbox.ts';
import type { OperationCall } from './operation-session.ts';

/** The file that the check writes in a sandbox, and removes. */
export interface SandboxFile extends LaunchedSandbox {
  /** The page's id of the conversation that has launched the sandbox. */
  readonly conversation: string;
  /** The file's name, which nobody else uses, and its path. */
  readonly name: string;
  readonly path: string;
  /** What is in it: ASCII. */
  readonly text: string;
}

/** A file with a name and a text of its own, in the folder of the sandbox. */
export function newSandboxFile(launched: LaunchedSandbox, conversation: string): SandboxFile {
  const name = `bot-relay-check-${randomUUID()}.txt`;
  const path = `${launched.folder.replace(/\/+$/, '')}/${name}`;
  return { ...launched, ...{ conversation, name, path, text: `A file of the check ${randomUUID()}.\n` } };
}

/** A request for the file, or with `folder` for the folder that it is in. */
export function requestFor(
  { conversation, sandbox, path, folder }: SandboxFile,
  of: 'file' | 'folder' = 'file',
): OperationCall & { readonly query: Readonly<Record<string, string>> } {
  return { conversation, sandbox, query: { path: of === 'file' ? path : folder } };
}
