import { Refusal } from '../wire/answers.ts';
import { type FileChange, type FileNode, type FileTree, FOLDER, isBelow, parentOf } from './file-tree.ts';

const MAX_PATH = 512;
const FILE_MODE = 0o644;

/**
 * An absolute path of a sandbox, without a slash at its end.
 * @throws Refusal `INVALID_PATH`, also for `.`, `..`, empty names, backslashes and control characters
 */
export function filePath(path: string | null): string {
  const isPlain = path !== null && path.length <= MAX_PATH && /^\/[^\\\p{Cc}]*$/u.test(path);
  const trimmed = isPlain ? path.replace(/(?<=.)\/$/, '') : '';
  if (trimmed === '/') return trimmed;
  const names = trimmed.split('/').slice(1);
  if (names.length === 0 || names.some((name) => name === '' || name === '.' || name === '..'))
    throw new Refusal('INVALID_PATH');
  return trimmed;
}

function nodeAt(tree: FileTree, path: string): FileNode {
  const node = tree.nodes.get(path);
  if (!node) throw new Refusal('FILE_NOT_FOUND');
  return node;
}

/** What is known of a path, also if there is nothing. */
export function fileState(node: FileNode | undefined) {
  return {
    isDir: node !== undefined && node.bytes === undefined,
    sizeBytes: node?.bytes?.length ?? 0,
    mtimeUnix: node?.mtimeUnix ?? 0,
    mode: node?.mode ?? 0,
  };
}

/** What stands right in a folder, by name. */
export function listFolder(tree: FileTree, path: string) {
  if (nodeAt(tree, path).bytes) throw new Refusal('INVALID_PATH');
  return [...tree.nodes]
    .filter(([key]) => key !== '/' && parentOf(key) === path)
    .map(([key, node]) => ({ name: key.slice(key.lastIndexOf('/') + 1), ...fileState(node) }))
    .sort((one, other) => (one.name < other.name ? -1 : 1));
}

/** The bytes of a file. */
export function readFile(tree: FileTree, path: string): Buffer {
  const { bytes } = nodeAt(tree, path);
  if (!bytes) throw new Refusal('INVALID_PATH');
  return bytes;
}

/** Writes a file, which may exist unless it `isNew`. */
export function writeFile(
  tree: FileTree,
  path: string,
  { bytes, isNew, mode = FILE_MODE }: { bytes: Buffer; isNew: boolean; mode?: number | undefined },
): void {
  if (isNew && tree.nodes.has(path)) throw new Refusal('ALREADY_EXISTS');
  tree.put(path, { bytes, mode });
}

/** Makes a folder with those above it. */
export function makeFolder(tree: FileTree, path: string): void {
  tree.put(path, FOLDER);
}

/** Removes a file or an empty folder. */
export function removeItem(tree: FileTree, path: string): void {
  nodeAt(tree, path);
  if ([...tree.nodes.keys()].some((key) => isBelow(key, path))) throw new Refusal('NOT_EMPTY');
  tree.remove(path);
}

/** Removes a file or a folder with all in it. */
export function removeAll(tree: FileTree, path: string): void {
  nodeAt(tree, path);
  tree.remove(path);
}

interface FromTo {
  readonly from: string;
  readonly to: string;
  readonly overwrites: boolean;
}

/** Copies a file, or a folder with all in it; returns the bytes of all files. */
export function copyFiles(tree: FileTree, fromTo: FromTo): number {
  const copied = filesToPut(tree, fromTo);
  for (const [path, node] of copied) tree.put(path, node);
  return copied.reduce((bytes, [, node]) => bytes + (node.bytes?.length ?? 0), 0);
}

/** Moves a file, or a folder with all in it. */
export function moveFiles(tree: FileTree, fromTo: FromTo): void {
  const moved = filesToPut(tree, fromTo);
  tree.remove(fromTo.from);
  for (const [path, node] of moved) tree.put(path, node);
}

/** What stands at or below `from`, with its paths at `to`, which is free after this. */
function filesToPut(tree: FileTree, { from, to, overwrites }: FromTo): (readonly [string, FileNode])[] {
  nodeAt(tree, from);
  if (from === to || isBelow(to, from) || isBelow(from, to)) throw new Refusal('INVALID_PATH');
  if (tree.nodes.has(to) && !overwrites) throw new Refusal('ALREADY_EXISTS');
  tree.remove(to);
  return [...tree.nodes]
    .filter(([key]) => key === from || isBelow(key, from))
    .map(([key, node]) => [to + key.slice(from.length), node] as const);
}

/** Calls `onChange` with changes of a path and of what stands right in it, or anywhere below; returns how to end that. */
export function watchFiles(
  tree: FileTree,
  { path, isDeep }: { readonly path: string; readonly isDeep: boolean },
  onChange: (change: FileChange) => void,
): () => void {
  nodeAt(tree, path);
  return tree.watch((change) => {
    const isSeen = change.path === path || parentOf(change.path) === path;
    if (isSeen || (isDeep && isBelow(change.path, path))) onChange(change);
  });
}
