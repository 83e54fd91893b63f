import { createRequire } from 'node:module';

const { default: Sequencer } = createRequire(import.meta.url)('@jest/test-sequencer');

/**
 * Files that start programs or a browser, or wait long. Jest orders files by their size if it has never run them, and
 * theirs is small.
 */
const SLOW =
  /\/tests\/(journeys|deploy|bench\/naive|demo\/files|client\/(use-bot|package|served|bot-chat|chat-)|check|watch\/alerts|storage|guard\/(fair-by-user|long-pauses|shared-budget)|join\/(first-id|lost-instances|sessions-elsewhere|shared-)|relay\/(many-streams|one-message-one-run))/;

/**
 * The order of the test files: one of the slow ones before every third of the others, so that few of them run at the
 * same time and none of them at the end.
 */
export default class extends Sequencer {
  async sort(tests) {
    const sorted = await super.sort(tests);
    const slow = sorted.filter(({ path }) => SLOW.test(path));
    const others = sorted.filter((one) => !slow.includes(one));
    const mixed = others.flatMap((one, index) => (index % 3 === 0 ? [...slow.splice(0, 1), one] : [one]));
    return [...slow, ...mixed];
  }
}
