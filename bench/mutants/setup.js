import { appendFileSync } from 'node:fs';
import { expect } from '@jest/globals';

// Notes which test files run which mutants. Edits of a mutant itself contain no call of it.
const { testPath } = expect.getState();
const seen = new Set();
globalThis.ran = (id) => {
  if (!seen.has(id)) appendFileSync(process.env.MUTANTS_RAN, `${id} ${testPath}\n`);
  seen.add(id);
};
