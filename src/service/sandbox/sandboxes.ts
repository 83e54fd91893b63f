import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { boundedMap } from '../store/bounded-map.ts';
import { Refusal } from '../wire/answers.ts';
import { type FileTree, fileTree } from './file-tree.ts';
import { writeFile } from './sandbox-files.ts';

/** A machine with files of a channel. */
export interface Sandbox {
  readonly id: string;
  /** The number of its channel. */
  readonly channel: number;
  readonly tree: FileTree;
  /** The streams that watch its files. They end with it. */
  readonly watching: Set<ServerResponse>;
}

export type Sandboxes = ReturnType<typeof sandboxes>;

/** The name of the only sandbox that each channel has. It takes no memory until it is used. */
const SANDBOX_NAME = 'demo';
/** Where a sandbox keeps the files that it has from the start. */
const WORKING_DIRECTORY = '/home/demo';
const DESCRIBED = {
  sandboxName: SANDBOX_NAME,
  sandboxBlueprintName: 'demo',
  workingDirectory: WORKING_DIRECTORY,
  editorServerEnabled: false,
  browserEnabled: true,
};
const README = Buffer.from('Files of the demo. They are in memory, and forgotten with their conversation.\n');
const MAX_SANDBOXES = 8;
const MAX_AGE_MS = 60 * 60 * 1000;

/** Sandboxes in memory; the least used of too many are forgotten. */
export function sandboxes() {
  const all = boundedMap<Sandbox>({
    maxEntries: MAX_SANDBOXES,
    maxAgeMs: MAX_AGE_MS,
    onLeave: ({ watching }) => {
      for (const res of watching) res.end();
    },
  });
  const of = (channel: number) => [...all.values()].find((one) => one.channel === channel);
  return {
    /** What a channel's metadata tells of its sandbox. */
    described: DESCRIBED,
    /**
     * The sandbox of the channel with this number, by its name; launched if it is not yet.
     * @throws Refusal `SANDBOX_NOT_FOUND`
     */
    findOrLaunch(channel: number, name: string): Sandbox {
      if (name !== SANDBOX_NAME) throw new Refusal('SANDBOX_NOT_FOUND');
      const known = all.get(of(channel)?.id ?? '');
      if (known) return known;
      const tree = fileTree();
      const sandbox: Sandbox = { id: randomUUID(), channel, tree, watching: new Set() };
      writeFile(tree, `${WORKING_DIRECTORY}/README.md`, { bytes: README, isNew: true });
      all.set(sandbox.id, sandbox);
      return sandbox;
    },
    forget(channel: number): void {
      const sandbox = of(channel);
      if (sandbox) all.delete(sandbox.id);
    },
  };
}
