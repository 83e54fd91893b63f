/** A reporter that ends Jest with status 1 at the first failure, and prints what failed. */
export default class {
  onTestCaseResult({ path }, { status, fullName }) {
    if (status === 'failed') end(path, fullName);
  }
  onTestFileResult({ path }, { failureMessage }) {
    if (failureMessage) end(path, failureMessage.trim().split('\n')[0]);
  }
}

function end(path, title) {
  console.log(`${path}: ${title}`);
  process.exit(1);
}
