#!/usr/bin/env node
// The program `bot-relay`: what `npm run build` has made of src/main.ts. It compiles nothing itself.
import { existsSync } from 'node:fs';

const main = new URL('../dist/main.js', import.meta.url);
if (existsSync(main)) {
  await import(main.href);
} else {
  process.stderr.write('bot-relay is not built: run npm run build\n');
  // A wrong setup, which another start would not mend (sysexits.h).
  process.exitCode = 78;
}
