/** What `test-environment.js` gives to the code of a test file. */
interface Environment {
  readonly atEndOfFile?: (() => void)[];
}

/** Has `end` called when the test file is over, whatever has failed in it. Outside of Jest, nobody calls it. */
export function atEndOfFile(end: () => void): void {
  (globalThis as Environment).atEndOfFile?.push(end);
}
