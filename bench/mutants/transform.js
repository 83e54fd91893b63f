import { readFileSync } from 'node:fs';
import swc from '@swc/jest';

/** Edits by path of a file. They are made in what Jest loads; no file is changed. */
const edits = JSON.parse(readFileSync(process.env.MUTANTS_EDITS, 'utf8'));

const edited = (source, path) =>
  (edits[path] ?? []).reduceRight(
    (text, { at, end, text: inserted }) => text.slice(0, at) + inserted + text.slice(end),
    source,
  );

export default {
  createTransformer(options) {
    const inner = swc.createTransformer(options);
    const withEdits =
      (call) =>
      (source, path, ...rest) =>
        call(edited(source, path), path, ...rest);
    return {
      process: withEdits(inner.process),
      processAsync: withEdits(inner.processAsync),
      getCacheKey: withEdits(inner.getCacheKey),
    };
  },
};
