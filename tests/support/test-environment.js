import { once } from 'node:events';
import { createRequire } from 'node:module';
import { TestEnvironment } from 'jest-environment-node';
import './compile-once.js';

// The router takes the promises of a test file for those of another library, and would say so once for each route.
process.env.NO_DEPRECATION = 'router';

/** The environment of a test file: that of Jest, and what it shares with the code that Node.js itself loads. */
export default class extends TestEnvironment {
  constructor(config, context) {
    super(config, context);
    this.errors = config.projectConfig.testEnvironmentOptions.sharesErrors
      ? { Error, RangeError, SyntaxError, TypeError, URIError }
      : // Express throws it for a path whose percent-encoding is broken, and the relay asks for its class.
        { URIError };
    this.childProcesses = new Set();
  }

  async setup() {
    await super.setup();
    // `loaded-by-node.js` uses it.
    this.global.requireByNode = createRequire(import.meta.url);
    Object.assign(this.global, this.errors);
    // `child-processes.ts` adds to it.
    this.global.childProcesses = this.childProcesses;
  }

  async teardown() {
    // What a failed test has not ended itself.
    await Promise.all([...this.childProcesses].map(killed));
    await super.teardown();
  }
}

async function killed(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}
