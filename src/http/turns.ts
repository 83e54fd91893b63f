/** Makes a function that resolves for one caller in each round of the event loop, in their order. */
export function turns(): () => Promise<void> {
  let last = Promise.resolve();
  return function nextTurn() {
    last = last.then(() => new Promise((resolve) => void setImmediate(resolve)));
    return last;
  };
}
