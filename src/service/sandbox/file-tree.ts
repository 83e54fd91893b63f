import { Refusal } from '../wire/answers.ts';

/** A file, or a folder, which has no bytes. */
export interface FileNode {
  readonly bytes: Buffer | undefined;
  /** In seconds since 1970. */
  readonly mtimeUnix: number;
  readonly mode: number;
}

export interface FileChange {
  readonly op: 'CREATE' | 'WRITE' | 'REMOVE';
  readonly path: string;
  readonly mtimeUnix: number;
}

/** Files and folders by their checked paths. The root is always there. */
export interface FileTree {
  readonly nodes: ReadonlyMap<string, FileNode>;
  /**
   * Adds or replaces a node, and makes the folders above it.
   * @throws Refusal `ALREADY_EXISTS` if a file stands where a folder must be, or the other way; `STORAGE_FULL`
   */
  put(path: string, node: Pick<FileNode, 'bytes' | 'mode'>): void;
  /** Removes a path with all below it. */
  remove(path: string): void;
  /** Calls `onChange` with every change; returns how to end that. */
  watch(onChange: (change: FileChange) => void): () => void;
}

const MAX_BYTES = 24 * 1024 * 1024;
const MAX_NODES = 500;
export const FOLDER = { bytes: undefined, mode: 0o755 };

/** An empty tree that holds at most `maxBytes` in all files. */
export function fileTree(maxBytes = MAX_BYTES): FileTree {
  const nodes = new Map<string, FileNode>([['/', { ...FOLDER, mtimeUnix: now() }]]);
  const watchers = new Set<(change: FileChange) => void>();
  let bytes = 0;
  const tell = (op: FileChange['op'], path: string) => {
    for (const onChange of watchers) onChange({ op, path, mtimeUnix: now() });
  };
  const put: FileTree['put'] = (path, node) => {
    const before = nodes.get(path);
    if (before && !before.bytes !== !node.bytes) throw new Refusal('ALREADY_EXISTS');
    if (before && !node.bytes) return;
    const added = (node.bytes?.length ?? 0) - (before?.bytes?.length ?? 0);
    if (bytes + added > maxBytes || nodes.size >= MAX_NODES) throw new Refusal('STORAGE_FULL');
    put(parentOf(path), FOLDER);
    bytes += added;
    nodes.set(path, { ...node, mtimeUnix: now() });
    tell(before ? 'WRITE' : 'CREATE', path);
  };
  return {
    nodes,
    put,
    remove(path) {
      for (const [one, node] of [...nodes].filter(([key]) => key === path || isBelow(key, path)).reverse()) {
        if (one === '/') continue;
        bytes -= node.bytes?.length ?? 0;
        nodes.delete(one);
        tell('REMOVE', one);
      }
    },
    watch(onChange) {
      watchers.add(onChange);
      return () => void watchers.delete(onChange);
    },
  };
}

const now = () => Math.floor(Date.now() / 1000);

/** The folder that a path stands in; the root stands in itself. */
export function parentOf(path: string): string {
  return path.slice(0, Math.max(1, path.lastIndexOf('/')));
}

/** Whether a path stands in a folder, at any depth. */
export function isBelow(path: string, folder: string): boolean {
  return path !== folder && path.startsWith(folder === '/' ? '/' : `${folder}/`);
}
