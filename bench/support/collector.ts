/**
 * Loaded into the relay before its own code (`--import`), with `--expose-gc`. At each SIGUSR2 it collects all garbage,
 * and writes what Node.js counts of its memory after that, in bytes, as `usage.json` into the folder USAGE_FOLDER.
 */
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

const file = join(process.env.USAGE_FOLDER ?? '.', 'usage.json');

process.on('SIGUSR2', async () => {
  global.gc?.();
  // What is outside of the heap is freed in a later turn, and what only that has held by another collection.
  await nextTurn();
  global.gc?.();
  await nextTurn();
  // Whoever waits for the file finds it whole.
  writeFileSync(`${file}.part`, JSON.stringify(process.memoryUsage()));
  renameSync(`${file}.part`, file);
});
