import type { GroupProbe } from './group-probe.ts';
import { jsonOf, verdictOn } from './judge-operation.ts';
import { reporterOf } from './report-operation.ts';
import { secretNamesIn } from './secret-names.ts';

const METADATA = 'GET metadata';

/** The configuration of the bot, which every user who is signed in can read. */
export const metadata: GroupProbe = {
  ask: ({ call }) => call(METADATA),
  async prove({ call, ...session }) {
    const { ok, note, problem, wrong } = reporterOf(session, METADATA);
    const answer = await call(METADATA);
    const json = jsonOf(answer);
    const names = secretNamesIn(json);
    if (verdictOn(answer) !== 'done') wrong(answer);
    else if (json === undefined) {
      const advice = 'Let the load balancer pass the answers of the relay on as they are.';
      problem('the answer is not JSON', advice);
    } else if (names.length === 0) ok('is JSON, and nothing in it is named like a secret');
    else {
      const says = `seems to hold secrets, which every user who is signed in can read: ${session.quote(names.join(', '))}`;
      note(says, "Take them out of the bot's configuration, or metadata out of OPERATIONS.");
    }
    return [];
  },
};
