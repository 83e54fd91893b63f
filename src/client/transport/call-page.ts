/** Undefined in Node.js. */
declare const reportError: ((error: unknown) => void) | undefined;

/** Calls a function of the page. What it throws is reported as an uncaught error of the page, and stops nothing here. */
export function callPage(call: () => unknown): void {
  try {
    call();
  } catch (error) {
    if (typeof reportError === 'function') reportError(error);
    else console.error(error);
  }
}
