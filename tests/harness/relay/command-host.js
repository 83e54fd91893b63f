// A process in which commands run one after the other, each as `dist/main.js` runs it: what a command loads is loaded
// once for all of them. `commands.ts` starts it.
const MAIN = new URL('../../../dist/main.js', import.meta.url);
let count = 0;

process.on('message', async ({ args, environment, folder }) => {
  process.chdir(folder);
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, environment);
  process.argv.splice(2, Number.POSITIVE_INFINITY, ...args);
  process.exitCode = undefined;
  const printed = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) {
    process[name].write = (text, ...rest) => {
      printed[name] += text;
      rest.find((one) => typeof one === 'function')?.();
      return true;
    };
  }
  try {
    // Another query makes it another module, which runs anew; what it imports stays loaded.
    await import(`${MAIN}?${count++}`);
  } catch (error) {
    printed.stderr += error.stack;
    process.exitCode = 1;
  }
  process.send({ code: process.exitCode, ...printed });
});
